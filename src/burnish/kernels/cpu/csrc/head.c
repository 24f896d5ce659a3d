/* What follows the logits z [rows][n] of a head: log-probs and entropies of chosen tokens with their gradient, and the choice itself.

       s = z factor,   lse = log sum e^s,   logp = s[chosen] - lse,   entropy = sum of p (lse - s),   p = e^(s - lse)

   Sampler and trainer take lse from the same function: the log-prob of a token is the same for both, bit for bit. */
#include "base.h"

#define BLOCK 256 /* numbers that are summed in fp32 before they meet others */

INLINE Vec some_of(const float *z, long left, float factor) { /* LANES of s, or as many as are left */
    if (left >= LANES) return load(z) * all(factor);
    Vec x = all(-INFINITY);
    for (long i = 0; i < left; i++) x[i] = z[i] * factor;
    return x;
}

static __attribute__((noinline)) float largest(const float *z, long n, float factor) {
    Vec top = all(-INFINITY);
    for (long j = 0; j < n; j += LANES) {
        const Vec x = some_of(z + j, n - j, factor);
        top = where(x > top, x, top);
    }
    return largest_of(top);
}

/* The sum of e^(s - top) of a block. */
static __attribute__((noinline)) double weight_of(const float *z, long n, float factor, float top) {
    Vec total = (Vec){0};
    for (long j = 0; j < n; j += LANES) total += exponential(some_of(z + j, n - j, factor) - all(top));
    return sum_of(total);
}

/* log sum e^s. weights: room for the sum up to the end of each block, or NULL. */
static __attribute__((noinline)) float log_sum(const float *z, long n, float factor, float *top, double *weights) {
    double total = 0;
    *top = largest(z, n, factor);
    for (long j = 0; j < n; j += BLOCK) {
        total += weight_of(z + j, least(BLOCK, n - j), factor, *top);
        if (weights) weights[j / BLOCK] = total;
    }
    return *top + (float)log(total);
}

static __attribute__((noinline)) float logp_of(float z, float factor, float lse) { return z * factor - lse; }

static float entropy_of(const float *z, long n, float factor, float lse) {
    double total = 0;
    for (long b = 0; b < n; b += BLOCK) {
        Vec part = (Vec){0};
        for (long j = b; j < least(b + BLOCK, n); j += LANES) {
            const Vec s = some_of(z + j, n - j, factor) - all(lse), p = exponential(s);
            part -= p * where(p > all(0), s, all(0));
        }
        total += sum_of(part);
    }
    return total;
}

/* A number in [0, 1) that belongs to a key and a counter (burnish/core/randomness.py). */
static double uniform(int64_t key, int64_t counter) {
    uint64_t x = (uint64_t)key + (uint64_t)counter * 0x9E3779B97F4A7C15u;
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
    return (double)((x ^ (x >> 31)) >> 11) * 0x1p-53;
}

/* The first token at which the sum of weights passes u times all of them; never one without weight. */
static long passed(const float *z, long n, float factor, float top, const double *weights, double u) {
    const long blocks = (n + BLOCK - 1) / BLOCK;
    const double wanted = u * weights[blocks - 1];
    long b = 0, found = -1;
    while (b < blocks - 1 && weights[b] <= wanted) b++;
    for (; found < 0 && b >= 0; b--) { /* the block before it, should rounding leave none here */
        double total = b ? weights[b - 1] : 0;
        for (long j = b * BLOCK; j < least((b + 1) * BLOCK, n); j += LANES) {
            const Vec p = exponential(some_of(z + j, n - j, factor) - all(top));
            for (long i = 0; i < LANES; i++)
                if (p[i] > 0) {
                    found = j + i;
                    total += p[i];
                    if (total > wanted) return found;
                }
        }
    }
    return found;
}

static long likeliest(const float *z, long n) {
    long found = 0;
    for (long j = 1; j < n; j++) found = z[j] > z[found] ? j : found;
    return found;
}

/* A row's next token, by its own noise, and its log-prob; -1 and NaN where NaN or infinite logits leave no choice. */
long next_token(const float *z, long n, float factor, int64_t key, int64_t position, int greedy, float *logp) {
    double *weights = (double *)scratch(TILES, 2 * ((n + BLOCK - 1) / BLOCK));
    float top;
    const float lse = log_sum(z, n, factor, &top, weights);
    const long token = greedy ? likeliest(z, n) : passed(z, n, factor, top, weights, uniform(key, position));
    *logp = token < 0 ? NAN : logp_of(z[token], factor, lse);
    return isnan(*logp) ? -1 : token;
}

/* The same for each of some rows. Returns how many have no token: theirs is written as 0. */
long choose(const float *z, long rows, long n, const float *factor, const int64_t *key, const int64_t *position, const uint8_t *greedy,
            int64_t *token, float *logp) {
    long without = 0;
#pragma omp parallel for schedule(static) reduction(+ : without)
    for (long r = 0; r < rows; r++) {
        const long found = next_token(z + r * n, n, factor[r], key[r], position[r], greedy[r], logp + r);
        token[r] = most(found, 0);
        without += found < 0;
    }
    return without;
}

/* Log-probs of chosen tokens, and what their gradient needs; each: 0 where one factor is that of all rows; entropy: NULL where
   nobody asks for it. Returns how many of the chosen tokens are not among the n: theirs is NaN. */
long from_logits(const float *z, long rows, long n, const int64_t *chosen, const float *factors, long each, float *lse, float *logp,
                 float *entropy) {
    long outside = 0;
#pragma omp parallel for schedule(static) reduction(+ : outside)
    for (long r = 0; r < rows; r++) {
        const float *mine = z + r * n, factor = factors[r * each];
        float top;
        lse[r] = log_sum(mine, n, factor, &top, 0);
        const int there = chosen[r] >= 0 && chosen[r] < n;
        outside += !there;
        logp[r] = there ? logp_of(mine[chosen[r]], factor, lse[r]) : NAN;
        if (entropy) entropy[r] = entropy_of(mine, n, factor, lse[r]);
    }
    return outside;
}

/* d z, for gradients of log-probs and (unless `more` is NULL) of entropies. Returns how many of the chosen tokens are not among the n. */
long d_logits(const float *z, long rows, long n, const int64_t *chosen, float factor, const float *lse, const float *entropy,
              const float *grad, const float *more, float *d) {
    long outside = 0;
#pragma omp parallel for schedule(static) reduction(+ : outside)
    for (long r = 0; r < rows; r++) {
        const float *mine = z + r * n;
        float *to = d + r * n;
        const float along = more ? more[r] : 0, spread = more ? entropy[r] : 0;
        for (long j = 0; j < n; j += LANES) {
            const Vec s = some_of(mine + j, n - j, factor) - all(lse[r]), p = exponential(s);
            const Vec found = all(-factor) * p * (all(grad[r]) + all(along) * (where(p > all(0), s, all(0)) + all(spread)));
            if (n - j >= LANES) store(to + j, found);
            else
                for (long i = 0; i < n - j; i++) to[j + i] = found[i];
        }
        if (chosen[r] >= 0 && chosen[r] < n) to[chosen[r]] += factor * grad[r];
        else outside++;
    }
    return outside;
}
