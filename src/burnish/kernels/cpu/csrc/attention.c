/* Attention. For one head of the keys, queries are rows and keys columns:

       s = q k^T * scale,   p = softmax(s),   o = p v
       dv = p^T do,   ds = p (do v^T - do o),   dq = ds k * scale,   dk = ds^T q * scale

   A stretch's keys are those of the stretches that lead to it, in order, then its own. Queries are worked on in blocks whose
   scores stay in the cache; the backward makes p again. Trees and heads are independent of each other: a thread takes one at a
   time. */
#include "base.h"

#define SCORES (96 * 1024) /* of a block */
#define FORGET 6 /* how much more may be computed in vain, where stretches have less than SHORT tokens */
#define SHORT 16

/* [tokens][width] of one head, turned into columns of panels [tokens / WIDE][width][WIDE], from column `at` on. */
static void turn(float *to, long at, View x, long head, long first, long tokens, long width) {
    for (long t = 0; t < tokens; t++) {
        const float *from = x.at + (first + t) * x.token + head * x.head;
        float *column = to + (at + t) / WIDE * width * WIDE + (at + t) % WIDE;
        for (long d = 0; d < width; d++) column[d * WIDE] = from[d];
    }
}

/* c [rows][columns, rounded up] = a b^T, from panels of b. */
static void dots(const float *a, long rows, long width, const float *panels, long columns, float *c, long ldc) {
    for (long j = 0; j < columns; j += WIDE)
        for (long i = 0; i < rows; i += ROWS)
            tile(least(ROWS, rows - i), width, a + i * width, width, 1, panels + j * width, WIDE, c + i * ldc + j, ldc, 0);
}

/* c [rows][width] = a b, a [rows][terms], b a row every ldb numbers; more: added to what is there. */
static void mixed(const float *a, long rows, long lda, const float *b, long terms, long ldb, float *c, long width, int more) {
    for (long d = 0; d < width; d += WIDE)
        for (long i = 0; i < rows; i += ROWS)
            tile(least(ROWS, rows - i), terms, a + i * lda, lda, 1, b + d, ldb, c + i * width + d, width, more);
}

/* c [columns][width], a row every ldc numbers, += a^T b, a [rows][columns], b [rows][width]. */
static void add_turned(const float *a, long rows, long lda, const float *b, long columns, long width, float *c, long ldc) {
    float made[ROWS * WIDE] __attribute__((aligned(64)));
    for (long t = 0; t < columns; t += ROWS)
        for (long d = 0; d < width; d += WIDE) {
            const int m = least(ROWS, columns - t);
            tile(m, rows, a + t, 1, lda, b + d, width, made, WIDE, 0);
            for (int i = 0; i < m; i++)
                for (long j = 0; j < WIDE; j += LANES) {
                    float *to = c + (t + i) * ldc + d + j;
                    store(to, load(to) + load(made + i * WIDE + j));
                }
        }
}

/* The first n of s become their exponentials (less the largest), the rest up to `all_of_them` zero; one over their sum. */
static __attribute__((noinline)) float soften(float *s, long n, long all_of_them) {
    Vec top = all(-INFINITY), total = (Vec){0};
    for (long j = n; j < up_to(n, LANES); j++) s[j] = -INFINITY;
    for (long j = 0; j < n; j += LANES) {
        const Vec x = load(s + j);
        top = where(x > top, x, top);
    }
    const Vec high = all(largest_of(top));
    for (long j = 0; j < n; j += LANES) {
        const Vec p = exponential(load(s + j) - high);
        store(s + j, p);
        total += p;
    }
    for (long j = up_to(n, LANES); j < all_of_them; j++) s[j] = 0;
    return 1.0f / sum_of(total);
}

static void scaled(float *to, const float *from, long n, float by) {
    for (long d = 0; d < n; d += LANES) store(to + d, load(from + d) * all(by));
}

/* Queries of a block of tokens, those that share keys next to each other: [tokens x sharing][width], times `by`. */
static void gather(const Shape *s, float *to, View x, long head, long first, long tokens, float by) {
    const long sharing = s->heads / s->kv_heads;
    for (long t = 0; t < tokens; t++)
        for (long i = 0; i < sharing; i++, to += s->width)
            scaled(to, x.at + (first + t) * x.token + (head * sharing + i) * x.head, s->width, by);
}

typedef struct {
    long first, tokens;
} Run;

/* A block of queries: tokens first .. end of the stretch that begins at `start`, and the runs of tokens that lead to it, `before`
   of them in all. Or, with `pack`, those of a whole tree, none of which sees all that come before it: `stretches` of them, from number
   `stretch` on. */
typedef struct {
    long head, first, end, start, before, runs, stride;
    const Run *path;
    const float *path_k, *path_v, *own_k, *own_v; /* turned around */
    const Pack *pack;
    long stretch, stretches;
} Block;

static void score(const Shape *s, const Block *b, const float *q, const float *path, const float *own, float *to) {
    const long rows = (b->end - b->first) * (s->heads / s->kv_heads);
    if (b->before) dots(q, rows, s->width, path, b->before, to, b->stride);
    dots(q, rows, s->width, own, b->end - b->start, to + b->before, b->stride);
}

/* The runs that lead to a stretch, the first one first; how many. */
static long path_to(const Pack *pack, long stretch, Run *path) {
    long runs = 0, at;
    for (at = pack->stretches[stretch].parent; at >= 0; at = pack->stretches[at].parent) runs++;
    long i = runs;
    for (at = pack->stretches[stretch].parent; at >= 0; at = pack->stretches[at].parent)
        path[--i] = (Run){pack->stretches[at].first, pack->stretches[at].end - pack->stretches[at].first};
    return runs;
}

/* In a whole tree, what a token does not see of what comes before it gets no weight. */
static void hide(const Shape *s, const Block *b, float *scores) {
    const long sharing = s->heads / s->kv_heads;
    Run *path = (Run *)scratch(PATH, b->stretches * (long)(sizeof(Run) / sizeof(float)));
    for (long i = b->stretch; i < b->stretch + b->stretches; i++) {
        const Stretch *mine = b->pack->stretches + i;
        const long from = most(mine->first, b->first), to = least(mine->end, b->end);
        if (from >= to) continue; /* none of it is in this block */
        const long runs = path_to(b->pack, i, path);
        path[runs] = (Run){mine->first, 0};
        for (long row = (from - b->first) * sharing; row < (to - b->first) * sharing; row++)
            for (long r = 0, seen = b->start; r <= runs; seen = path[r].first + path[r].tokens, r++)
                for (long j = seen; j < path[r].first; j++) scores[row * b->stride + j - b->start] = -INFINITY;
    }
}

/* Softmax of every row of a block; by [rows]: one over each sum. */
static void soften_all(const Shape *s, const Block *b, float *scores, float *by) {
    const long sharing = s->heads / s->kv_heads;
    if (b->pack) hide(s, b, scores);
    for (long t = b->first, r = 0; t < b->end; t++)
        for (long i = 0; i < sharing; i++, r++)
            by[r] = soften(scores + r * b->stride, b->before + t - b->start + 1, b->before + b->end - b->start);
}

/* p v, run after run: the sums go on where those of the run before ended. */
static void mix(const Shape *s, const Block *b, const float *p, View v, float *to) {
    const long rows = (b->end - b->first) * (s->heads / s->kv_heads);
    const float *at = v.at + b->head * v.head;
    for (long i = 0; i < b->runs; p += b->path[i++].tokens)
        mixed(p, rows, b->stride, at + b->path[i].first * v.token, b->path[i].tokens, v.token, to, s->width, i > 0);
    mixed(p, rows, b->stride, at + b->start * v.token, b->end - b->start, v.token, to, s->width, b->runs > 0);
}

static void look(const Shape *s, const Block *b, View q, View v, View to) {
    const long sharing = s->heads / s->kv_heads, tokens = b->end - b->first, rows = tokens * sharing;
    float *queries = scratch(QUERIES, 2 * rows * s->width), *out = queries + rows * s->width;
    float *scores = scratch(POINTS, rows * (b->stride + 1)), *by = scores + rows * b->stride;
    gather(s, queries, q, b->head, b->first, tokens, s->scale);
    score(s, b, queries, b->path_k, b->own_k, scores);
    soften_all(s, b, scores, by);
    mix(s, b, scores, v, out);
    for (long r = 0; r < rows; r++)
        scaled(to.at + (b->first + r / sharing) * to.token + (b->head * sharing + r % sharing) * to.head, out + r * s->width,
               s->width, by[r]);
}

/* given: q, k, v, o, do; found: dq, dk, dv. */
static void look_back(const Shape *s, const Block *b, const View *given, const View *found) {
    const long sharing = s->heads / s->kv_heads, tokens = b->end - b->first, rows = tokens * sharing, w = s->width;
    const long keys = b->end - b->start, wide = b->before + keys;
    float *queries = scratch(QUERIES, 4 * rows * w), *d = queries + rows * w, *seen = d + rows * w, *dq = seen + rows * w;
    float *p = scratch(POINTS, rows * (2 * b->stride + 1)), *ds = p + rows * b->stride, *by = ds + rows * b->stride;
    gather(s, queries, given[0], b->head, b->first, tokens, s->scale);
    gather(s, seen, given[3], b->head, b->first, tokens, 1);
    gather(s, d, given[4], b->head, b->first, tokens, 1);
    score(s, b, queries, b->path_k, b->own_k, p);
    soften_all(s, b, p, by);
    score(s, b, d, b->path_v, b->own_v, ds);
    for (long r = 0; r < rows; r++) {
        Vec along = (Vec){0};
        for (long j = 0; j < w; j += LANES) along += load(d + r * w + j) * load(seen + r * w + j);
        const Vec mean = all(sum_of(along)), part = all(by[r]);
        for (long j = 0; j < wide; j += LANES) {
            float *mine = p + r * b->stride + j, *its = ds + r * b->stride + j;
            store(mine, load(mine) * part);
            store(its, load(mine) * (load(its) - mean));
        }
    }
    mix(s, b, ds, given[1], dq);
    for (long r = 0; r < rows; r++)
        scaled(found[0].at + (b->first + r / sharing) * found[0].token + (b->head * sharing + r % sharing) * found[0].head,
               dq + r * w, w, s->scale);
    for (int i = 1; i < 3; i++) { /* keys from ds and queries, values from p and do */
        const float *a = i == 1 ? ds : p, *with = i == 1 ? queries : d;
        float *to = found[i].at + b->head * found[i].head;
        for (long j = 0; j < b->runs; a += b->path[j++].tokens)
            add_turned(a, rows, b->stride, with, b->path[j].tokens, w, to + b->path[j].first * found[i].token, found[i].token);
        add_turned(a, rows, b->stride, with, keys, w, to + b->start * found[i].token, found[i].token);
    }
}

/* Whether the way back through a tree is shorter if every token looks at all that come before it, and forgets what it should not see:
   so it is where stretches are so short that few rows are ever multiplied at once. */
static int as_one(const Pack *pack, long first_of, long number) {
    const Stretch *all_of_them = pack->stretches + first_of;
    const long tokens = all_of_them[number - 1].end - all_of_them[0].first;
    if (number == 1 || tokens >= SHORT * number) return 0;
    int64_t *leading = (int64_t *)scratch(NUMBERS, 2 * number), seen = 0;
    for (long i = 0; i < number; i++) {
        const long own = all_of_them[i].end - all_of_them[i].first, parent = all_of_them[i].parent;
        leading[i] = own + (parent < 0 ? 0 : leading[parent - first_of]);
        seen += own * leading[i];
    }
    return tokens * tokens < FORGET * seen;
}

/* The way back through one head of a whole tree. */
static void walk_as_one(const Shape *s, const Pack *pack, long first_of, long number, long head, const View *given, const View *found) {
    const long start = pack->stretches[first_of].first, tokens = pack->stretches[first_of + number - 1].end - start;
    const long at_once = most(1, SCORES / (tokens + WIDE) / (s->heads / s->kv_heads));
    float *turned[2];
    for (int j = 0; j < 2; j++) {
        turned[j] = scratch(j ? OWN_V : OWN_K, s->width * up_to(tokens, WIDE));
        turn(turned[j], 0, given[1 + j], head, start, tokens, s->width);
    }
    for (long first = start; first < start + tokens; first += at_once) {
        const Block block = {
            .head = head, .first = first, .end = least(first + at_once, start + tokens), .start = start,
            .stride = up_to(tokens + WIDE, LANES), .own_k = turned[0], .own_v = turned[1], .pack = pack, .stretch = first_of,
            .stretches = number,
        };
        look_back(s, &block, given, found);
    }
}

/* One head of one tree, block by block: forward (found is NULL) or back. */
static void walk(const Shape *s, const Pack *pack, long tree, long head, const View *given, const View *found, View to) {
    const long first_of = pack->begins[tree], number = pack->begins[tree + 1] - first_of, sharing = s->heads / s->kv_heads;
    if (found && as_one(pack, first_of, number)) {
        walk_as_one(s, pack, first_of, number, head, given, found);
        return;
    }
    Run *path = (Run *)scratch(PATH, number * (long)(sizeof(Run) / sizeof(float)));
    float *path_turned[2] = {0}, *own_turned[2] = {0};
    long runs = 0, before = 0, parent = -1;
    for (long i = first_of; i < first_of + number; i++) {
        if (pack->known && pack->known[i]) continue;
        const Stretch *mine = pack->stretches + i;
        const long own = mine->end - mine->first;
        if (mine->parent != parent) { /* else those that lead to it are turned already */
            runs = path_to(pack, i, path);
            before = 0;
            for (long r = 0; r < runs; r++) before += path[r].tokens;
            for (int j = 0; j < (found ? 2 : 1); j++) {
                path_turned[j] = scratch(j ? PATH_V : PATH_K, s->width * up_to(before, WIDE));
                for (long r = 0, at = 0; r < runs; at += path[r++].tokens)
                    turn(path_turned[j], at, given[1 + j], head, path[r].first, path[r].tokens, s->width);
            }
            parent = mine->parent;
        }
        for (int j = 0; j < (found ? 2 : 1); j++) {
            own_turned[j] = scratch(j ? OWN_V : OWN_K, s->width * up_to(own, WIDE));
            turn(own_turned[j], 0, given[1 + j], head, mine->first, own, s->width);
        }
        const long wide = before + own, at_once = most(1, SCORES / (wide + WIDE) / sharing);
        for (long first = mine->first; first < mine->end; first += at_once) {
            const Block block = {
                .head = head, .first = first, .end = least(first + at_once, mine->end), .start = mine->first,
                .before = before, .runs = runs, .stride = up_to(wide + WIDE, LANES), .path = path,
                .path_k = path_turned[0], .path_v = path_turned[1], .own_k = own_turned[0], .own_v = own_turned[1],
            };
            if (found) look_back(s, &block, given, found);
            else look(s, &block, given[0], given[2], to);
        }
    }
}

void attend_pack(const Shape *s, const Pack *pack, View q, View k, View v, View to) {
    const View given[3] = {q, k, v};
#pragma omp for schedule(dynamic)
    for (long task = 0; task < pack->trees * s->kv_heads; task++)
        walk(s, pack, task / s->kv_heads, task % s->kv_heads, given, 0, to);
}

void attend_pack_back(const Shape *s, const Pack *pack, const View *given, const View *found) {
#pragma omp for schedule(dynamic)
    for (long task = 0; task < pack->trees * s->kv_heads; task++)
        walk(s, pack, task / s->kv_heads, task % s->kv_heads, given, found, (View){0});
}

/* Attention alone, over a pack, and back: for models whose layers are not these. */
void attend(const Shape *s, const Pack *pack, const View *given, const View *to) {
#pragma omp parallel
    attend_pack(s, pack, given[0], given[1], given[2], *to);
}

void attend_back(const Shape *s, const Pack *pack, const View *given, const View *found) {
#pragma omp parallel
    attend_pack_back(s, pack, given, found);
}

/* Rows of one family that add a token each: `found` holds their queries, keys and values, queries and keys not yet ready. */
static void look_living(const Shape *s, const Layer *l, const Living *w, long family, long head, float *found, float *to) {
    const long sharing = s->heads / s->kv_heads, d = s->width, first = w->begins[family], members = w->begins[family + 1] - first;
    if (!members) return;
    const long before = w->lengths[family], rows = members * sharing, total = (s->heads + 2 * s->kv_heads) * d;
    const int64_t *row = w->order + first;
    long longest = 0;
    for (long j = 0; j < members; j++) longest = most(longest, w->own[row[j]] + 1);
    const long stride = up_to(before + longest + WIDE, LANES);
    float *q = scratch(QUERIES, 2 * rows * d), *out = q + rows * d;
    float *scores = scratch(POINTS, rows * (stride + 1)), *by = scores + rows * stride;
    const float *root_k = l->roots_k + (family * s->kv_heads + head) * d * w->longest;
    const float *root_v = l->roots_v + (family * s->kv_heads + head) * d * w->longest;
    for (long j = 0; j < members; j++) {
        float *mine = found + row[j] * total, *k = mine + (s->heads + head) * d, *v = k + s->kv_heads * d;
        const float *cos = w->cos + row[j] * d / 2, *sin = w->sin + row[j] * d / 2;
        const long slot = (w->slot[row[j]] * s->kv_heads + head) * d * w->capacity, at = w->own[row[j]];
        float *slot_k = l->own_k + slot + at / WIDE * d * WIDE + at % WIDE;
        for (long i = 0; i < sharing; i++) {
            ready(s, mine + (head * sharing + i) * d, l->q_norm, cos, sin);
            scaled(q + (j * sharing + i) * d, mine + (head * sharing + i) * d, d, s->scale);
        }
        ready(s, k, l->k_norm, cos, sin);
        for (long i = 0; i < d; i++) slot_k[i * WIDE] = k[i];
        memcpy(l->own_v + slot + at * d, v, d * sizeof(float));
    }
    if (before) dots(q, rows, d, root_k, before, scores, stride);
    for (long j = 0; j < members; j++)
        dots(q + j * sharing * d, sharing, d, l->own_k + (w->slot[row[j]] * s->kv_heads + head) * d * w->capacity, w->own[row[j]] + 1,
             scores + j * sharing * stride + before, stride);
    for (long r = 0; r < rows; r++) by[r] = soften(scores + r * stride, before + w->own[row[r / sharing]] + 1, 0);
    if (before) mixed(scores, rows, stride, root_v, before, d, out, d, 0);
    for (long j = 0; j < members; j++)
        mixed(scores + j * sharing * stride + before, sharing, stride, l->own_v + (w->slot[row[j]] * s->kv_heads + head) * d * w->capacity,
              w->own[row[j]] + 1, d, out + j * sharing * d, d, before > 0);
    for (long r = 0; r < rows; r++)
        scaled(to + row[r / sharing] * s->heads * d + (head * sharing + r % sharing) * d, out + r * d, d, by[r]);
}

void attend_living(const Shape *s, const Layer *l, const Living *living, float *found, float *to) {
#pragma omp for schedule(dynamic, 4)
    for (long task = 0; task < living->families * s->kv_heads; task++)
        look_living(s, l, living, task / s->kv_heads, task % s->kv_heads, found, to);
}

/* What slots `from` hold, so many tokens each, goes to slots `to` as well. */
void copy_slots(const Shape *s, const Layer *layers, long number, long capacity, long copies, const int64_t *from, const int64_t *to,
                const int64_t *tokens) {
    const long size = s->width * capacity;
#pragma omp parallel for schedule(static)
    for (long task = 0; task < number * copies * s->kv_heads; task++) {
        const long i = task / s->kv_heads % copies, head = task % s->kv_heads;
        const Layer *l = layers + task / s->kv_heads / copies;
        const long source = (from[i] * s->kv_heads + head) * size, target = (to[i] * s->kv_heads + head) * size;
        memcpy(l->own_k + target, l->own_k + source, up_to(tokens[i], WIDE) * s->width * sizeof(float));
        memcpy(l->own_v + target, l->own_v + source, tokens[i] * s->width * sizeof(float));
    }
}
