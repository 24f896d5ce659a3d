/* Whole layers: forward for training and for reading prompts, what a backward needs between its products, and one step of
   decoding through all of them. */
#include "base.h"

/* Pairs (x_i, x_{i + width / 2}) are turned by their angles, way = 1, or back, way = -1. */
static __attribute__((noinline)) void rotate(float *restrict x, long width, const float *restrict cos, const float *restrict sin, float way) {
    const long half = width / 2;
    for (long i = 0; i < half; i++) {
        const float first = x[i], second = x[half + i], s = way * sin[i];
        x[i] = first * cos[i] - second * s;
        x[half + i] = second * cos[i] + first * s;
    }
}

/* 1 / sqrt(mean x^2 + eps) */
static __attribute__((noinline)) float scale_of(const float *x, long n, float eps) {
    Vec total = (Vec){0};
    long j = 0;
    for (; j + LANES <= n; j += LANES) total += load(x + j) * load(x + j);
    float sum = sum_of(total);
    for (; j < n; j++) sum += x[j] * x[j];
    return 1.0f / sqrtf(sum / n + eps);
}

static __attribute__((noinline)) void norm_row(const float *restrict x, const float *restrict weight, float *restrict to, long n, float eps) {
    const float r = scale_of(x, n, eps);
    for (long j = 0; j < n; j++) to[j] = x[j] * r * weight[j];
}

static __attribute__((noinline)) void norm_head(float *restrict x, const float *restrict weight, long n, float eps) {
    const float r = scale_of(x, n, eps);
    for (long j = 0; j < n; j++) x[j] = x[j] * r * weight[j];
}

void ready(const Shape *s, float *x, const float *norm, const float *cos, const float *sin) {
    if (norm) norm_head(x, norm, s->width, s->eps);
    rotate(x, s->width, cos, sin, 1);
}

/* This thread's share of the rows: row i of x, or row at[i]. */
static void norm_rows(const float *x, const int64_t *at, const float *weight, float *to, long rows, long n, float eps) {
#pragma omp for schedule(static)
    for (long i = 0; i < rows; i++) norm_row(x + (at ? at[i] : i) * n, weight, to + i * n, n, eps);
}

void norm(const float *x, const int64_t *at, const float *weight, float *to, long rows, long n, float eps) {
#pragma omp parallel if (rows > 16)
    norm_rows(x, at, weight, to, rows, n, eps);
}

#define TOGETHER 128 /* rows whose shares of a norm's gradient are summed before they meet others: their number must not depend on threads */

/* dx = r (d w - x r mean(d w x r)) + plus (or nothing);  dw = sum of d x r over rows: row i of x, or row at[i]. */
void norm_back(const float *d, const float *x, const int64_t *at, const float *weight, const float *plus, float *dx, float *dw, long rows,
               long n, float eps) {
    const long number = (rows + TOGETHER - 1) / TOGETHER;
    float *parts = scratch(TILES, number * n);
#pragma omp parallel for schedule(static)
    for (long p = 0; p < number; p++) {
        float *part = parts + p * n;
        memset(part, 0, n * sizeof(float));
        for (long i = p * TOGETHER; i < least((p + 1) * TOGETHER, rows); i++) {
            const float *mine = x + (at ? at[i] : i) * n, *its = d + i * n;
            const float r = scale_of(mine, n, eps);
            Vec along = (Vec){0};
            long j = 0;
            for (; j + LANES <= n; j += LANES) {
                const Vec unit = load(mine + j) * all(r);
                along += load(its + j) * load(weight + j) * unit;
                store(part + j, load(part + j) + load(its + j) * unit);
            }
            float mean = sum_of(along);
            for (; j < n; j++) {
                mean += its[j] * weight[j] * (mine[j] * r);
                part[j] += its[j] * (mine[j] * r);
            }
            mean /= n;
            for (j = 0; j < n; j++) dx[i * n + j] = r * (its[j] * weight[j] - mine[j] * r * mean);
            if (plus)
                for (j = 0; j < n; j++) dx[i * n + j] += plus[i * n + j];
        }
    }
    memset(dw, 0, n * sizeof(float));
    for (long p = 0; p < number; p++)
        for (long j = 0; j < n; j++) dw[j] += parts[p * n + j];
}

/* From the gradient of silu(gate) up [rows][n] and from both [rows][2 n], or [at[row]][2 n]: the product itself, and the gradients of both. */
void gate_back(const float *d, const float *both, const int64_t *at, float *made, float *d_both, long rows, long n) {
#pragma omp parallel for schedule(static)
    for (long i = 0; i < rows; i++) {
        const float *gates = both + 2 * (at ? at[i] : i) * n, *ups = gates + n;
        for (long j = 0; j < n; j += LANES) {
            const Vec gate = load(gates + j), up = load(ups + j), its = load(d + i * n + j);
            const Vec part = all(1.0f) / (all(1.0f) + exponential(-gate)), open = gate * part;
            store(made + i * n + j, open * up);
            store(d_both + 2 * i * n + j, its * up * part * (all(1.0f) + gate * (all(1.0f) - part)));
            store(d_both + 2 * i * n + n + j, its * open);
        }
    }
}

static View part_of(const Shape *s, float *all_of_them, long first) {
    return (View){all_of_them + first * s->width, (s->heads + 2 * s->kv_heads) * s->width, s->width};
}

/* Queries and keys of rows get ready; raw [rows][heads + kv_heads][width]: what they were before, where heads have norms, or NULL. */
static void ready_rows(const Shape *s, const Layer *l, float *found, float *raw, long rows, const float *cos, const float *sin) {
    const long w = s->width, both = s->heads + s->kv_heads, total = (both + s->kv_heads) * w;
#pragma omp for schedule(static)
    for (long i = 0; i < rows; i++) {
        if (raw) memcpy(raw + i * both * w, found + i * total, both * w * sizeof(float));
        for (long h = 0; h < both; h++)
            ready(s, found + i * total + h * w, h < s->heads ? l->q_norm : l->k_norm, cos + i * w / 2, sin + i * w / 2);
    }
}

/* Back through the norms of heads: d_found becomes the gradient of raw; and the gradients of the norms' weights. */
void head_norms_back(const Shape *s, const float *q_norm, const float *k_norm, const float *raw, float *d_found, float *d_norms, long rows) {
    const long w = s->width, both = s->heads + s->kv_heads, total = (both + s->kv_heads) * w, number = (rows + TOGETHER - 1) / TOGETHER;
    float *parts = scratch(TILES, number * 2 * w);
#pragma omp parallel for schedule(static)
    for (long p = 0; p < number; p++) {
        memset(parts + p * 2 * w, 0, 2 * w * sizeof(float));
        for (long i = p * TOGETHER; i < least((p + 1) * TOGETHER, rows); i++)
            for (long h = 0; h < both; h++) {
                const float *x = raw + (i * both + h) * w, *weight = h < s->heads ? q_norm : k_norm;
                float *d = d_found + i * total + h * w, *part = parts + p * 2 * w + (h < s->heads ? 0 : w);
                const float r = scale_of(x, w, s->eps);
                Vec along = (Vec){0};
                for (long j = 0; j < w; j += LANES) along += load(d + j) * load(weight + j) * load(x + j);
                const float mean = sum_of(along) * r / w;
                for (long j = 0; j < w; j++) {
                    const float unit = x[j] * r;
                    part[j] += d[j] * unit;
                    d[j] = r * (d[j] * weight[j] - unit * mean);
                }
            }
    }
    memset(d_norms, 0, 2 * w * sizeof(float));
    for (long p = 0; p < number; p++)
        for (long j = 0; j < 2 * w; j++) d_norms[j] += parts[p * 2 * w + j];
}

/* The inner layer of rows: y = x + (silu(n Wg^T) (n Wu^T)) Wd^T. */
static void inner(const Shape *s, const Layer *l, const float *x, float *y, float *normed, float *opened, float *both, long rows) {
    const End gated = {.to = opened, .both = both, .columns = s->inner, .gated = 1};
    const End added = {.to = y, .plus = x, .columns = s->hidden};
    norm_rows(x, 0, l->inner_norm, normed, rows, s->hidden, s->eps);
    product(normed, l->open, rows, s->hidden, &gated);
#pragma omp barrier
    product(opened, l->down, rows, s->inner, &added);
#pragma omp barrier
}

/* A layer over a pack. x, middle, y [tokens][hidden]; found: queries and keys that are ready, and values; raw: see `ready_rows`; seen: what attention made of
   them; both: gates and what they let through, or NULL; normed and opened are in between. */
void layer(const Shape *s, const Layer *l, const Pack *pack, const float *cos, const float *sin, const float *x, float *found,
           float *raw, float *seen, float *middle, float *both, float *y, float *normed, float *opened) {
    const long n = pack->tokens, w = s->width;
    const End read = {.to = found, .bias = l->read_bias, .columns = (s->heads + 2 * s->kv_heads) * w}, added = {.to = middle, .plus = x, .columns = s->hidden};
#pragma omp parallel
    {
        norm_rows(x, 0, l->norm, normed, n, s->hidden, s->eps);
        product(normed, l->read, n, s->hidden, &read);
#pragma omp barrier
        ready_rows(s, l, found, raw, n, cos, sin);
        attend_pack(s, pack, part_of(s, found, 0), part_of(s, found, s->heads), part_of(s, found, s->heads + s->kv_heads),
                    (View){seen, s->heads * w, w});
        product(seen, l->out, n, s->heads * w, &added);
#pragma omp barrier
        inner(s, l, middle, y, normed, opened, both, n);
    }
}

/* The two halves of a layer over rows of which some are known, with `attend` between them (arguments as of `layer`). */
void layer_begins(const Shape *s, const Layer *l, const float *cos, const float *sin, const float *x, float *found, float *normed, long rows) {
    const End read = {.to = found, .bias = l->read_bias, .columns = (s->heads + 2 * s->kv_heads) * s->width};
#pragma omp parallel
    {
        norm_rows(x, 0, l->norm, normed, rows, s->hidden, s->eps);
        product(normed, l->read, rows, s->hidden, &read);
#pragma omp barrier
        ready_rows(s, l, found, 0, rows, cos, sin);
    }
}

void layer_ends(const Shape *s, const Layer *l, const float *x, const float *seen, float *middle, float *both, float *y, float *normed,
                float *opened, long rows) {
    const End added = {.to = middle, .plus = x, .columns = s->hidden};
#pragma omp parallel
    {
        product(seen, l->out, rows, s->heads * s->width, &added);
#pragma omp barrier
        inner(s, l, middle, y, normed, opened, both, rows);
    }
}

/* The gradient of `found` before its rotation, from that of `seen`; d_found is zero. */
void attention_back(const Shape *s, const Pack *pack, const float *cos, const float *sin, float *found, float *seen, float *d_seen,
                    float *d_found) {
    const View given[5] = {part_of(s, found, 0), part_of(s, found, s->heads), part_of(s, found, s->heads + s->kv_heads),
                           {seen, s->heads * s->width, s->width}, {d_seen, s->heads * s->width, s->width}};
    const View made[3] = {part_of(s, d_found, 0), part_of(s, d_found, s->heads), part_of(s, d_found, s->heads + s->kv_heads)};
#pragma omp parallel
    {
        attend_pack_back(s, pack, given, made);
        const long w = s->width, both = s->heads + s->kv_heads;
#pragma omp for schedule(static)
        for (long i = 0; i < pack->tokens; i++)
            for (long h = 0; h < both; h++)
                rotate(d_found + (i * (both + s->kv_heads) + h) * w, w, cos + i * w / 2, sin + i * w / 2, -1);
    }
}

/* This thread's share of a copy, if there is a place for it. */
static void copy_rows(float *to, const float *from, long rows, long n) {
    if (!to) return;
#pragma omp for schedule(static)
    for (long i = 0; i < rows; i++) memcpy(to + i * n, from + i * n, n * sizeof(float));
}

static Kept from_row(const Shape *s, Kept k, long first) {
    return (Kept){k.x + first * s->hidden, k.found + first * (s->heads + 2 * s->kv_heads) * s->width, k.seen + first * s->heads * s->width,
                  k.middle + first * s->hidden, k.both + first * 2 * s->inner};
}

/* One token of each row through all layers: x [rows][hidden] is overwritten. between: room for what lies between products. kept: where
   what a backward needs of each layer goes, from row `first` on, or NULL. */
void decode(const Shape *s, const Layer *layers, long number, const Living *living, float *x, float *between, const Kept *kept, long first) {
    const long n = living->rows, total = (s->heads + 2 * s->kv_heads) * s->width;
    float *normed = between, *found = normed + n * s->hidden, *seen = found + n * total, *opened = seen + n * s->heads * s->width;
    const End added = {.to = x, .plus = x, .columns = s->hidden};
#pragma omp parallel
    for (long i = 0; i < number; i++) {
        const Layer *l = layers + i;
        const Kept at = kept ? from_row(s, kept[i], first) : (Kept){.found = found, .seen = seen};
        const End read = {.to = at.found, .bias = l->read_bias, .columns = total};
        norm_rows(x, 0, l->norm, normed, n, s->hidden, s->eps);
        copy_rows(at.x, x, n, s->hidden);
        product(normed, l->read, n, s->hidden, &read);
#pragma omp barrier
        attend_living(s, l, living, at.found, at.seen);
        product(at.seen, l->out, n, s->heads * s->width, &added);
#pragma omp barrier
        copy_rows(at.middle, x, n, s->hidden);
        inner(s, l, x, x, normed, opened, at.both, n);
    }
}
