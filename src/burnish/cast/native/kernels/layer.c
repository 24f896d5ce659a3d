/* Whole layers: forward for training and for reading prompts, what a backward needs between its products, and one step of
   decoding through all of them. */
#include "base.h"

/* Pairs (x_i, x_{i + width / 2}) are turned by their angles, way = 1, or back, way = -1. */
__attribute__((noinline)) void rotate(float *restrict x, long width, const float *restrict cos, const float *restrict sin, float way) {
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

/* This thread's share of the rows. */
static void norm_rows(const float *x, const float *weight, float *to, long rows, long n, float eps) {
#pragma omp for schedule(static)
    for (long i = 0; i < rows; i++) norm_row(x + i * n, weight, to + i * n, n, eps);
}

void norm(const float *x, const float *weight, float *to, long rows, long n, float eps) {
#pragma omp parallel if (rows > 16)
    norm_rows(x, weight, to, rows, n, eps);
}

#define TOGETHER 128 /* rows whose shares of a norm's gradient are summed before they meet others: their number must not depend on threads */

/* dx = r (d w - x r mean(d w x r)) + plus (or nothing);  dw = sum of d x r over rows. */
void norm_back(const float *d, const float *x, const float *weight, const float *plus, float *dx, float *dw, long rows, long n,
               float eps) {
    const long number = (rows + TOGETHER - 1) / TOGETHER;
    float *parts = scratch(0, number * n);
#pragma omp parallel for schedule(static)
    for (long p = 0; p < number; p++) {
        float *part = parts + p * n;
        memset(part, 0, n * sizeof(float));
        for (long i = p * TOGETHER; i < least((p + 1) * TOGETHER, rows); i++) {
            const float *mine = x + i * n, *its = d + i * n;
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

/* From the gradient of silu(gate) up [rows][n] and from both [rows][2 n]: the product itself, and the gradients of both. */
void gate_back(const float *d, const float *both, float *made, float *d_both, long rows, long n) {
#pragma omp parallel for schedule(static)
    for (long i = 0; i < rows; i++) {
        const float *gates = both + 2 * i * n, *ups = gates + n;
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

static void rotate_rows(const Shape *s, float *found, long rows, const float *cos, const float *sin, float way) {
    const long w = s->width, total = (s->heads + 2 * s->kv_heads) * w;
#pragma omp for schedule(static)
    for (long i = 0; i < rows; i++)
        for (long h = 0; h < s->heads + s->kv_heads; h++) rotate(found + i * total + h * w, w, cos + i * w / 2, sin + i * w / 2, way);
}

/* The inner layer of rows: y = x + (silu(n Wg^T) (n Wu^T)) Wd^T. */
static void inner(const Shape *s, const Layer *l, const float *x, float *y, float *normed, float *opened, float *both, long rows) {
    const End gated = {.to = opened, .both = both, .columns = s->inner, .gated = 1};
    const End added = {.to = y, .plus = x, .columns = s->hidden};
    norm_rows(x, l->inner_norm, normed, rows, s->hidden, s->eps);
    product(normed, l->open, rows, s->hidden, &gated);
#pragma omp barrier
    product(opened, l->down, rows, s->inner, &added);
#pragma omp barrier
}

/* A layer over a pack. x, middle, y [tokens][hidden]; found: rotated queries and keys, and values; seen: what attention made of
   them; both: gates and what they let through, or NULL; normed and opened are in between. */
void layer(const Shape *s, const Layer *l, const Pack *pack, const float *cos, const float *sin, const float *x, float *found,
           float *seen, float *middle, float *both, float *y, float *normed, float *opened) {
    const long n = pack->tokens, w = s->width;
    const End read = {.to = found, .bias = l->read_bias, .columns = (s->heads + 2 * s->kv_heads) * w}, added = {.to = middle, .plus = x, .columns = s->hidden};
#pragma omp parallel
    {
        norm_rows(x, l->norm, normed, n, s->hidden, s->eps);
        product(normed, l->read, n, s->hidden, &read);
#pragma omp barrier
        rotate_rows(s, found, n, cos, sin, 1);
        attend_pack(s, pack, part_of(s, found, 0), part_of(s, found, s->heads), part_of(s, found, s->heads + s->kv_heads),
                    (View){seen, s->heads * w, w});
        product(seen, l->out, n, s->heads * w, &added);
#pragma omp barrier
        inner(s, l, middle, y, normed, opened, both, n);
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
        rotate_rows(s, d_found, pack->tokens, cos, sin, -1);
    }
}

/* One token of each row through all layers: x [rows][hidden] is overwritten. between: room for what lies between products. */
void decode(const Shape *s, const Layer *layers, long number, const Living *living, float *x, float *between) {
    const long n = living->rows, total = (s->heads + 2 * s->kv_heads) * s->width;
    float *normed = between, *found = normed + n * s->hidden, *seen = found + n * total, *opened = seen + n * s->heads * s->width;
    const End added = {.to = x, .plus = x, .columns = s->hidden};
#pragma omp parallel
    for (const Layer *l = layers; l < layers + number; l++) {
        const End read = {.to = found, .bias = l->read_bias, .columns = total};
        norm_rows(x, l->norm, normed, n, s->hidden, s->eps);
        product(normed, l->read, n, s->hidden, &read);
#pragma omp barrier
        attend_living(s, l, living, found, seen);
        product(seen, l->out, n, s->heads * s->width, &added);
#pragma omp barrier
        inner(s, l, x, x, normed, opened, 0, n);
    }
}
