/* What all kernels share: vectors of floats, their exponential, and the one product that everything is made of.

   A number never depends on how the work around it was cut: each sum goes through its terms in one order, by fused
   multiply-adds from zero, whatever rows or columns are computed beside it and by however many threads. That is what makes
   sampler and trainer agree bit for bit. Written for gcc's and clang's vectors, so that it runs wherever they do. */
#include <math.h>
#include <omp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if defined(__AVX512F__)
#define LANES 16
#define ROWS 14 /* of a product's tile: two vectors a row, and two more, fill the registers */
#elif defined(__AVX__)
#define LANES 8
#define ROWS 6
#else
#define LANES 4
#define ROWS 8
#endif
#define WIDE (2 * LANES) /* columns of a tile */

typedef float Vec __attribute__((vector_size(LANES * 4), aligned(4), may_alias));
typedef int32_t Ints __attribute__((vector_size(LANES * 4), aligned(4), may_alias));
#define INLINE static inline __attribute__((always_inline))

INLINE Vec load(const float *p) { return *(const Vec *)p; }
INLINE void store(float *p, Vec v) { *(Vec *)p = v; }
INLINE Vec all(float x) { return x - (Vec){0}; } /* and not 0 + x, which is something else for -0 */
INLINE Vec where(Ints yes, Vec a, Vec b) { return (Vec)(((Ints)a & yes) | ((Ints)b & ~yes)); }
INLINE long least(long a, long b) { return a < b ? a : b; }
INLINE long most(long a, long b) { return a > b ? a : b; }
INLINE long up_to(long n, long step) { return (n + step - 1) / step * step; }

/* One number of all lanes: halves meet until one is left, in an order that never changes. */
#define FOLD(name, a, b, how)                                                                                            \
    INLINE float name(Vec v) {                                                                                           \
        float x[LANES];                                                                                                  \
        store(x, v);                                                                                                     \
        _Pragma("GCC unroll 8") for (int half = LANES / 2; half; half /= 2)                                              \
            _Pragma("GCC unroll 16") for (int i = 0; i < half; i++) {                                                    \
            const float a = x[i], b = x[i + half];                                                                       \
            x[i] = how;                                                                                                  \
        }                                                                                                                \
        return x[0];                                                                                                     \
    }
FOLD(sum_of, a, b, a + b)
FOLD(largest_of, a, b, a > b ? a : b)

/* e^x to about the last bit: 2^n times a polynomial in the rest; 0 below -87. */
INLINE Vec exponential(Vec x) {
    const Ints gone = x < all(-87.0f), over = x > all(88.0f);
    x = where(gone, all(-87.0f), where(over, all(88.0f), x));
    const Vec shift = all(12582912.0f), moved = x * all(1.44269504f) + shift, n = moved - shift; /* n: the nearest integer */
    const Vec r = (x - n * all(0.693359375f)) - n * all(-2.12194440e-4f);
    Vec p = all(1.9875691500e-4f);
    p = p * r + all(1.3981999507e-3f);
    p = p * r + all(8.3334519073e-3f);
    p = p * r + all(4.1665795894e-2f);
    p = p * r + all(1.6666665459e-1f);
    p = p * r + all(5.0000001201e-1f);
    p = p * (r * r) + r + all(1.0f);
    const Ints power = ((Ints)moved - (Ints)shift) << 23;
    return (Vec)((Ints)((Vec)((Ints)p + power)) & ~gone);
}

/* x / (1 + e^-x) */
INLINE Vec silu(Vec x) { return x / (all(1.0f) + exponential(-x)); }

/* c[i][j] = sum over k of a[i rs + k cs] b[k ldb + j], i < m <= ROWS, j < WIDE; `more`: added to what is in c, term by term. */
void tile(int m, long terms, const float *a, long rs, long cs, const float *b, long ldb, float *c, long ldc, int more);
/* The same of a laid out [terms][ROWS], and of b [terms][WIDE]; next: memory that will be asked for soon. */
void tile_of_packed(int m, long terms, const float *a, const float *b, float *c, long ldc, const float *next, long seldom);

/* Memory of this thread alone, that its next call finds again. which: one of several pieces. */
enum { TILES, PANELS, QUERIES, POINTS, PATH, PATH_K, PATH_V, OWN_K, OWN_V, STEP, NUMBERS, PIECES };
float *scratch(int which, long floats); /* ends the process where there is no memory */

/* What becomes of a product's sums: stored, added to `plus` or to each column's bias, or the gate of one half opened for the other (both
   kept on request). */
typedef struct {
    float *to, *both;
    const float *plus, *bias;
    long columns, gated;
} End;

/* This thread's share of x W^T, x [rows][inputs]; inside a parallel region, and with a barrier behind it. */
void product(const float *x, const float *panels, long rows, long inputs, const End *end);

/* A model's sizes, and its eps. */
typedef struct {
    long hidden, heads, kv_heads, width, inner;
    float eps, scale;
} Shape;

/* [tokens][heads][width] somewhere in memory; the numbers of a head lie side by side. */
typedef struct {
    float *at;
    long token, head;
} View;

/* Rows laid end to end, what they have in common once: trees of stretches, those of tree number f from begins[f] on, each after the
   one that it goes on from. A stretch looks at those that lead to it, and at itself. known: which stretches only lead to others, since
   what they see is known; or NULL. */
typedef struct {
    int64_t first, end, parent; /* tokens first .. end; parent: the number of a stretch, or -1 */
} Stretch;

typedef struct {
    long tokens, trees;
    const int64_t *begins;
    const Stretch *stretches;
    const char *known;
} Pack;

/* Rows that add a token each. slot: where the keys and values of each are; own: how many tokens are there already (of capacity).
   Rows order[begins[f]] .. of family f share root number f, which has lengths[f] tokens (longest at most). */
typedef struct {
    long rows, families, capacity, longest;
    const int64_t *slot, *own, *order, *begins, *lengths;
    const float *cos, *sin;
} Living;

/* Weights of a layer as they are multiplied, and, where rows are decoded, its keys in panels [slots][heads][capacity / WIDE][width]
   [WIDE] and values [slots][heads][capacity][width], and those of the roots. */
typedef struct {
    const float *norm, *read, *out, *inner_norm, *open, *down;
    const float *read_bias, *q_norm, *k_norm; /* of queries, keys and values; of each head of queries and of keys; or NULL */
    float *own_k, *own_v;
    const float *roots_k, *roots_v;
} Layer;

/* What a backward needs of a layer, as `layer` makes it. */
typedef struct {
    float *x, *found, *seen, *middle, *both;
} Kept;

/* What is computed once for all layers: where tokens begin, and what follows the last layer; cosines and sines of each position.
   slots, capacity: of the KV cache; positions: lines of cos and sin. Indices that come from outside are compared with these. */
typedef struct {
    const Layer *layers;
    long number, capacity, vocabulary, slots, positions;
    const float *embedding, *norm, *head, *cos, *sin;
} Model;

/* The rows of an engine (engine/batch.py), one entry a row; tokens, logp [slots][room]: what each has sampled. at: the slot where what
   a row has read lies; leaders, number: see `leading`; mark: room for a number a slot. family: the root that each shares, of lengths[..]
   tokens (longest at most), or NULL. */
typedef struct {
    int64_t *last, *count;
    const int64_t *limit, *key, *root_length, *base, *slot;
    const float *factor;
    const uint8_t *greedy;
    uint8_t *done, *ended;
    int64_t *tokens;
    float *logp;
    const int64_t *stops;
    long room, endings;
    int64_t *at, *leaders, *number, *mark;
    const int64_t *family, *lengths;
    long families, longest;
} Rows;

/* A head of queries or keys as attention reads it: normalised, if there is a norm, and rotated. */
void ready(const Shape *s, float *x, const float *norm, const float *cos, const float *sin);
/* This thread's share of attention: over a pack, back through it, and of rows that add a token each. */
void attend_pack(const Shape *s, const Pack *pack, View q, View k, View v, View to);
void attend_pack_back(const Shape *s, const Pack *pack, const View *given, const View *found);
void attend_living(const Shape *s, const Layer *l, const Living *living, float *found, float *to);
/* A token of each row through all layers, norms of rows, products with weights, the choice of a token: see there. */
void decode(const Shape *s, const Layer *layers, long number, const Living *living, float *x, float *between, const Kept *kept, long first);
void norm(const float *x, const int64_t *at, const float *weight, float *to, long rows, long n, float eps);
void times(const float *x, const float *panels, float *y, long rows, long inputs, long outputs, const float *plus);
long next_token(const float *z, long n, float factor, int64_t key, int64_t position, int greedy, float *logp);
