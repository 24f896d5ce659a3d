/* The rows that an engine decodes: which of them are computed, what each could say next, what it says, and where what it has read lies. */
#include "base.h"

/* Rows that have read and said the same lie in one slot. The first of each such kind that lives leads it: leaders, in order; number: the
   kind of each row (0 of those that do not live). Returns how many kinds there are. */
long leading(const Rows *r, long n) {
    long found = 0;
    for (long i = 0; i < n; i++) r->mark[r->at[i]] = -1;
    for (long i = 0; i < n; i++) {
        r->number[i] = 0;
        if (r->done[i]) continue;
        int64_t *kind = r->mark + r->at[i];
        if (*kind < 0) {
            *kind = found;
            r->leaders[found++] = i;
        }
        r->number[i] = *kind;
    }
    return found;
}

/* Leaders by the root that they share: rows of one family look at it together. Without roots each is a family. */
static void by_family(const Rows *r, long n, int64_t *order, int64_t *begins, int64_t *lengths) {
    if (!r->family) {
        for (long i = 0; i <= n; i++) {
            begins[i] = i;
            if (i < n) order[i] = i, lengths[i] = 0;
        }
        return;
    }
    memset(begins, 0, (r->families + 1) * sizeof(int64_t));
    for (long i = 0; i < n; i++) begins[r->family[r->leaders[i]] + 1]++;
    for (long f = 0; f < r->families; f++) begins[f + 1] += begins[f];
    for (long f = 0; f < r->families; f++) lengths[f] = begins[f]; /* for now: where the next one goes */
    for (long i = 0; i < n; i++) order[lengths[r->family[r->leaders[i]]]++] = i;
    memcpy(lengths, r->lengths, r->families * sizeof(int64_t));
}

/* Whether a row's token, its place in the KV cache, its position and its root are where the model has such. */
static int inside(const Model *m, const Rows *r, long row) {
    const long own = r->base[row] + r->count[row] - 1, position = own + r->root_length[row];
    if (r->last[row] < 0 || r->last[row] >= m->vocabulary || r->at[row] < 0 || r->at[row] >= m->slots) return 0;
    if (own < 0 || own >= m->capacity || position < own || position >= m->positions) return 0;
    if (!r->family) return 1;
    const long family = r->family[row];
    return family >= 0 && family < r->families && r->lengths[family] >= 0 && r->lengths[family] <= r->longest;
}

/* z [n][vocabulary]: what each of the first n leaders could say after its newest token, which is read, and its key and value kept. What a
   backward needs of it goes to kept, and its last state to last, from row `first` on; kept is NULL where nobody asks for it. Returns -1; or a row that
   has a token or a place that the model has not, and then nothing was computed. */
long next_logits(const Shape *s, const Model *m, const Rows *r, long n, const Kept *kept, float *last, long first, float *z) {
    for (long i = 0; i < n; i++)
        if (!inside(m, r, r->leaders[i])) return r->leaders[i];
    const long half = s->width / 2, families = r->family ? r->families : n;
    const long wide = 2 * s->hidden + (2 * s->heads + 2 * s->kv_heads) * s->width + s->inner;
    float *x = scratch(STEP, n * (wide + s->hidden + 2 * half)), *cos = x + n * s->hidden, *sin = cos + n * half, *between = sin + n * half;
    int64_t *slot = (int64_t *)scratch(NUMBERS, 2 * (3 * n + 2 * families + 2)), *own = slot + n, *order = own + n, *begins = order + n;
    int64_t *lengths = begins + families + 1;
    for (long i = 0; i < n; i++) {
        const long row = r->leaders[i], position = r->base[row] + r->count[row] - 1 + r->root_length[row];
        slot[i] = r->at[row];
        own[i] = r->base[row] + r->count[row] - 1;
        memcpy(x + i * s->hidden, m->embedding + r->last[row] * s->hidden, s->hidden * sizeof(float));
        memcpy(cos + i * half, m->cos + position * half, half * sizeof(float));
        memcpy(sin + i * half, m->sin + position * half, half * sizeof(float));
    }
    by_family(r, n, order, begins, lengths);
    const Living living = {n, families, m->capacity, r->family ? r->longest : 0, slot, own, order, begins, lengths, cos, sin};
    decode(s, m->layers, m->number, &living, x, between, kept, first);
    if (kept) memcpy(last + first * s->hidden, x, n * s->hidden * sizeof(float));
    norm(x, 0, m->norm, between, n, s->hidden, s->eps);
    times(between, m->head, z, n, s->hidden, m->vocabulary, 0);
    return -1;
}

static void says(const Rows *r, long i, int64_t token, float logp) {
    const long place = r->slot[i] * r->room + r->count[i]++;
    r->tokens[place] = r->last[i] = token;
    r->logp[place] = logp;
    for (long j = 0; j < r->endings; j++) r->ended[i] |= token == r->stops[j];
    r->done[i] = r->ended[i] || r->count[i] >= r->limit[i];
}

/* One more token for each of the rows from .. to that lives, from z [kinds][n]; of: its kind, or NULL, where each has a line of its own.
   Returns how many have none, because their logits are NaN or infinite or there is no room for it: those are done. */
long say(const Rows *r, long from, long to, const float *z, long n, const int64_t *of) {
    long without = 0;
#pragma omp parallel for schedule(static) reduction(+ : without)
    for (long i = from; i < to; i++) {
        if (r->done[i]) continue;
        const int64_t position = r->root_length[i] + r->base[i] + r->count[i];
        float logp;
        const int64_t token = next_token(z + (of ? of[i] : i - from) * n, n, r->factor[i], r->key[i], position, r->greedy[i], &logp);
        if (token < 0 || r->count[i] < 0 || r->count[i] >= r->room) {
            r->done[i] = 1;
            without++;
            continue;
        }
        says(r, i, token, logp);
    }
    return without;
}

/* Rows have said something: those of a slot that said the same stay together. The slot's own row keeps it, with all that said what it
   said; where that row lives no longer, the first row does, unless the slot is about to be given away (leaving). The first row of every
   other kind needs a copy in its own slot: moved [3][most]: from, to, how many tokens. Returns how many. */
long part(const Rows *r, long n, const uint8_t *alive, long leaving, int64_t *moved, long most) {
    int64_t *next = (int64_t *)scratch(NUMBERS, 2 * 2 * (n + 1)), *kept = next + n + 1; /* of a kind: the next of its slot; whether it keeps it */
    int64_t *first = r->leaders, number = 0, copies = 0;
    for (long i = 0; i < n; i++) r->mark[r->at[i]] = -1;
    for (long i = 0; i < n; i++) {
        if (!alive[i]) continue;
        int64_t *kind = r->mark + r->at[i];
        while (*kind >= 0 && r->last[first[*kind]] != r->last[i]) kind = next + *kind;
        if (*kind < 0) {
            first[number] = i;
            next[number] = -1;
            kept[number] = 0;
            *kind = number++;
        }
        r->number[i] = *kind;
        kept[*kind] |= r->slot[i] == r->at[i];
    }
    for (long i = 0; !leaving && i < number; i++) { /* slots whose own row is gone */
        const int64_t head = r->mark[r->at[first[i]]];
        int64_t kind = head;
        while (kind >= 0 && !kept[kind]) kind = next[kind];
        if (kind < 0) kept[head] = 1;
    }
    for (long k = 0; k < number; k++) {
        const long row = first[k];
        next[k] = kept[k] ? r->at[row] : r->slot[row]; /* from now on: where a kind lies */
        if (kept[k]) continue;
        moved[copies] = r->at[row];
        moved[most + copies] = r->slot[row];
        moved[2 * most + copies++] = r->base[row] + r->count[row] - 1;
    }
    for (long i = 0; i < n; i++)
        if (alive[i]) r->at[i] = next[r->number[i]];
    return copies;
}
