/* Products with weights that were laid out once: [panels][inputs][WIDE], as the inner loop reads them. */
#include "base.h"

INLINE void add_up(const int m, long terms, const float *restrict a, long rs, long cs, const float *restrict b, long ldb,
                   float *restrict c, long ldc, const int more, const float *next, long seldom) {
    Vec s[ROWS][2];
#pragma GCC unroll 16
    for (int i = 0; i < m; i++) {
        s[i][0] = more ? load(c + i * ldc) : (Vec){0};
        s[i][1] = more ? load(c + i * ldc + LANES) : (Vec){0};
    }
    for (long k = 0; k < terms; k++) {
        if (next && (k & seldom) == 0) {
            __builtin_prefetch(next, 0, 2);
            next += LANES;
        }
        const Vec b0 = load(b + k * ldb), b1 = load(b + k * ldb + LANES);
#pragma GCC unroll 16
        for (int i = 0; i < m; i++) {
            const Vec x = all(a[i * rs + k * cs]);
            s[i][0] += x * b0;
            s[i][1] += x * b1;
        }
    }
#pragma GCC unroll 16
    for (int i = 0; i < m; i++) {
        store(c + i * ldc, s[i][0]);
        store(c + i * ldc + LANES, s[i][1]);
    }
}

#if ROWS == 14
#define EACH(F) F(1) F(2) F(3) F(4) F(5) F(6) F(7) F(8) F(9) F(10) F(11) F(12) F(13) F(14)
#elif ROWS == 8
#define EACH(F) F(1) F(2) F(3) F(4) F(5) F(6) F(7) F(8)
#else
#define EACH(F) F(1) F(2) F(3) F(4) F(5) F(6)
#endif

void tile(int m, long terms, const float *a, long rs, long cs, const float *b, long ldb, float *c, long ldc, int more) {
    if (more) switch (m) {
#define CASE(n) case n: add_up(n, terms, a, rs, cs, b, ldb, c, ldc, 1, 0, 0); break;
            EACH(CASE)
#undef CASE
        }
    else switch (m) {
#define CASE(n) case n: add_up(n, terms, a, rs, cs, b, ldb, c, ldc, 0, 0, 0); break;
            EACH(CASE)
#undef CASE
        }
}

void tile_of_packed(int m, long terms, const float *a, const float *b, float *c, long ldc, const float *next, long seldom) {
    switch (m) {
#define CASE(n) case n: add_up(n, terms, a, 1, ROWS, b, WIDE, c, ldc, 0, next, seldom); break;
        EACH(CASE)
#undef CASE
    }
}

float *scratch(int which, long floats) {
    static _Thread_local struct { float *at; long size; } kept[PIECES];
    if (kept[which].size < floats) {
        free(kept[which].at);
        kept[which].at = aligned_alloc(64, up_to(4 * floats, 4096));
        if (!kept[which].at) {
            fprintf(stderr, "burnish: no memory for %ld bytes that a CPU kernel needs\n", 4 * floats);
            abort();
        }
        kept[which].size = floats;
    }
    return kept[which].at;
}

int columns_of_a_panel(void) { return WIDE; }

/* What becomes of the sums of a tile [m][WIDE]. */
static void finish(const End *end, const float *made, long row, int m, long panel) {
    const long n = end->columns;
    for (int i = 0; i < m; i++, row++, made += WIDE) {
        if (end->gated) {
            const Vec gate = load(made), open = silu(gate), up = load(made + LANES);
            store(end->to + row * n + panel * LANES, open * up);
            if (end->both) {
                store(end->both + row * 2 * n + panel * LANES, gate);
                store(end->both + row * 2 * n + n + panel * LANES, up);
            }
            continue;
        }
        const long first = panel * WIDE;
        float *to = end->to + row * n + first;
        const float *plus = end->plus ? end->plus + row * n + first : 0;
        if (first + WIDE <= n)
            for (int j = 0; j < WIDE; j += LANES) {
                Vec sum = load(made + j);
                if (plus) sum += load(plus + j);
                if (end->bias) sum += load(end->bias + first + j);
                store(to + j, sum);
            }
        else
            for (long j = 0; j < n - first; j++) to[j] = made[j] + (plus ? plus[j] : 0) + (end->bias ? end->bias[first + j] : 0);
    }
}

typedef float Four __attribute__((vector_size(16), aligned(4), may_alias));
typedef int32_t FourInts __attribute__((vector_size(16)));
#if defined(__clang__)
#define PICK(x, y, a, b, c, d) __builtin_shufflevector(x, y, a, b, c, d)
#else
#define PICK(x, y, a, b, c, d) __builtin_shuffle(x, y, (FourInts){a, b, c, d})
#endif

/* x [rows][inputs], a row every `line` numbers, is turned around, four by four: [inputs][rows], a line every `stride` numbers. */
static void turn_around(const float *x, long line, long rows, long inputs, float *to, long stride) {
    long i = 0;
    for (; i + 4 <= rows; i += 4) {
        const float *from = x + i * line;
        long k = 0;
        for (; k + 4 <= inputs; k += 4) {
            const Four a = *(const Four *)(from + k), b = *(const Four *)(from + line + k);
            const Four c = *(const Four *)(from + 2 * line + k), d = *(const Four *)(from + 3 * line + k);
            const Four ab = PICK(a, b, 0, 4, 1, 5), cd = PICK(c, d, 0, 4, 1, 5), ef = PICK(a, b, 2, 6, 3, 7), gh = PICK(c, d, 2, 6, 3, 7);
            float *at = to + k * stride + i;
            *(Four *)at = PICK(ab, cd, 0, 1, 4, 5);
            *(Four *)(at + stride) = PICK(ab, cd, 2, 3, 6, 7);
            *(Four *)(at + 2 * stride) = PICK(ef, gh, 0, 1, 4, 5);
            *(Four *)(at + 3 * stride) = PICK(ef, gh, 2, 3, 6, 7);
        }
        for (; k < inputs; k++)
            for (long j = 0; j < 4; j++) to[k * stride + i + j] = from[j * line + k];
    }
    for (; i < rows; i++)
        for (long k = 0; k < inputs; k++) to[k * stride + i] = x[i * line + k];
}

/* weight [outputs][inputs] in panels: each takes the next `taken` outputs as its columns from `at` on. */
void lay_out(const float *weight, float *panels, long outputs, long inputs, long taken, long at) {
#pragma omp parallel for
    for (long p = 0; p < (outputs + taken - 1) / taken; p++) {
        const long real = least(taken, outputs - p * taken);
        float *to = panels + p * inputs * WIDE + at;
        turn_around(weight + p * taken * inputs, inputs, real, inputs, to, WIDE);
        for (long j = real; j < taken; j++)
            for (long k = 0; k < inputs; k++) to[k * WIDE + j] = 0;
    }
}

/* A matrix in parts, one below the other: rows[i] of part i, those of the last one are what is left. */
typedef struct {
    const float *at[3];
    long rows[3];
} Below;

static const float *row_of(const Below *b, long row, long columns) {
    int i = 0;
    for (; i < 2 && row >= b->rows[i]; i++) row -= b->rows[i];
    return b->at[i] + row * columns;
}

/* Rows begin .. begin + inputs of b [..][columns] in panels; inside a parallel region, with a barrier behind it. */
static void put_in_panels(const Below *b, long begin, float *panels, long inputs, long columns) {
#pragma omp for
    for (long k = 0; k < inputs; k++) {
        const float *row = row_of(b, begin + k, columns);
        for (long first = 0; first < columns; first += WIDE) {
            const float *from = row + first;
            float *to = panels + first * inputs + k * WIDE;
            if (first + WIDE <= columns)
                for (int j = 0; j < WIDE; j += LANES) store(to + j, load(from + j));
            else
                for (long j = 0; j < WIDE; j++) to[j] = first + j < columns ? from[j] : 0;
        }
    }
}

/* Rows [rows][inputs], a row every `line` numbers; turned: [inputs][rows], every `line` numbers what all rows have at one place. */
typedef struct {
    const float *at;
    long line, turned;
} Lines;

/* Some rows of x become [tiles][inputs][ROWS]. */
static void put_side_by_side(const Lines *x, long first, long rows, long inputs, float *to) {
    const long whole = up_to(ROWS, LANES);
    if (!x->turned) {
        for (long i = 0; i < rows; i += ROWS)
            turn_around(x->at + (first + i) * x->line, x->line, least(ROWS, rows - i), inputs, to + i * inputs, ROWS);
        return;
    }
    for (long k = 0; k < inputs; k++)
        for (long i = 0; i < rows; i += ROWS) {
            const float *from = x->at + k * x->line + first + i;
            float *at = to + i * inputs + k * ROWS;
            if (k + 1 < inputs && first + i + whole <= x->line) /* what is written too much is written again by the next k */
                for (long j = 0; j < whole; j += LANES) store(at + j, load(from + j));
            else
                for (long j = 0; j < least(ROWS, rows - i); j++) at[j] = from[j];
        }
}

#define FEW (8 * ROWS) /* rows a thread from which on each works on rows of its own */
#define HELD (160 * 1024) /* numbers of x that a thread works on at once: they should stay in its cache */

/* Rows first .. end_row of x with panels from .. to, of `number`; while a panel is multiplied with, the next one is fetched. */
static void rows_times_panels(const Lines *x, long first, long end_row, const float *panels, long from, long to, long number, long inputs,
                              float *held, const End *end) {
    const long tiles = (end_row - first + ROWS - 1) / ROWS, seldom = tiles >= 8 ? 3 : tiles >= 4 ? 1 : 0;
    float made[ROWS * WIDE] __attribute__((aligned(64)));
    put_side_by_side(x, first, end_row - first, inputs, held);
    for (long p = from; p < to; p++)
        for (long row = first; row < end_row; row += ROWS) {
            const int m = least(ROWS, end_row - row);
            const float *next = panels + least(p + 1, number - 1) * inputs * WIDE + (row - first) / ROWS * (inputs / (seldom + 1)) * LANES;
            const int straight = !end->gated && !end->plus && !end->bias && (p + 1) * WIDE <= end->columns;
            float *to_row = straight ? end->to + row * end->columns + p * WIDE : made;
            tile_of_packed(m, inputs, held + (row - first) * inputs, panels + p * inputs * WIDE, to_row, straight ? end->columns : WIDE,
                           tiles > 1 ? next : 0, seldom);
            if (!straight) finish(end, made, row, m, p);
        }
}

/* How much longer the longest of `threads` shares of n is than all would be, were they alike. */
static float waste(long n, long threads) { return (float)((n + threads - 1) / threads * threads) / n; }

/* This thread's share of x b. */
static void share(const Lines *x, const float *panels, long rows, long inputs, const End *end) {
    const long t = omp_get_thread_num(), threads = omp_get_num_threads(), tiles = (rows + ROWS - 1) / ROWS;
    const long number = (end->columns + (end->gated ? LANES : WIDE) - 1) / (end->gated ? LANES : WIDE);
    const int few = rows < FEW * threads, by_panels = few || waste(tiles, threads) > waste(number, threads) + 0.03f;
    const long from = by_panels ? number * t / threads : 0, to = by_panels ? number * (t + 1) / threads : number;
    const long first = by_panels ? 0 : tiles * t / threads, last = by_panels ? tiles : tiles * (t + 1) / threads;
    /* few rows at once: each thread reads weights of its own; of more, as many as stay in the cache: each block of rows reads all weights */
    const long at_most = few ? most(1, tiles) : most(1, least(16, HELD / (inputs * ROWS))), blocks = (last - first + at_most - 1) / at_most;
    float *held = scratch(TILES, at_most * ROWS * inputs);
    for (long i = 0; i < blocks; i++) /* of about one size */
        rows_times_panels(x, (first + (last - first) * i / blocks) * ROWS, least((first + (last - first) * (i + 1) / blocks) * ROWS, rows),
                          panels, from, to, number, inputs, held, end);
}

void product(const float *x, const float *panels, long rows, long inputs, const End *end) {
    const Lines lines = {x, inputs, 0};
    share(&lines, panels, rows, inputs, end);
}

#define TERMS 1024 /* that are added up before the next ones are laid out */

/* c = a b: a [rows][terms], or turned [terms][rows], and b [terms][columns], none of which was laid out before. */
void multiply(const float *a, long turned, const Below *b, float *c, long rows, long terms, long columns) {
    const long blocks = (terms + TERMS - 1) / TERMS, number = (columns + WIDE - 1) / WIDE;
    float *panels = scratch(PANELS, number * WIDE * ((terms + blocks - 1) / blocks));
#pragma omp parallel
    for (long i = 0; i < blocks; i++) {
        const long first = terms * i / blocks, some = terms * (i + 1) / blocks - first;
        const Lines x = {a + first * (turned ? rows : 1), turned ? rows : terms, turned};
        const End end = {.to = c, .plus = i ? c : 0, .columns = columns};
        put_in_panels(b, first, panels, some, columns);
        share(&x, panels, rows, some, &end);
#pragma omp barrier
    }
}

void times(const float *x, const float *panels, float *y, long rows, long inputs, long outputs, const float *plus) {
    const End end = {.to = y, .plus = plus, .columns = outputs};
#pragma omp parallel
    product(x, panels, rows, inputs, &end);
}
