/* SPDX-License-Identifier: Apache-2.0 */
/* The numbers of codecs cast, fp8 and fp4: every code against the definition of its format, every
 * tie, scales, saturation, and how much is lost. */
#include "gw_test.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include <gradwire/codec.h>

#include "bytes.h"
#include "kernels.h"
#include "quant_fill.h"

enum { N = 65536, ROOM = 4 * N + 4096 };
static float x[N], y[N], limit[N];
static uint8_t payload[ROOM];

static gw_coder_t coder_of(const char *spec)
{
    gw_coder_t coder;
    char why[256] = "";
    if (gw_coder_parse(spec, &coder, why, sizeof why))
        ck_abort_msg("%s: %s", spec, why);
    return coder;
}

static size_t encode(const gw_coder_t *coder, size_t count)
{
    size_t length = 0;
    gw_encode_t in = {.src = x, .count = count};
    ck_assert_int_eq(coder->family->encode(coder, &in, payload, sizeof payload, &length), GW_OK);
    return length;
}

static void decode(const gw_coder_t *coder, size_t length, size_t count)
{
    gw_decode_t out = {.payload = payload, .length = length, .count = count, .dst = y};
    ck_assert_int_eq(coder->family->decode(coder, &out), GW_OK);
}

static void use_tier(int i)
{
    ck_assert_int_eq(gw__kernels_select(gw__kernels_available((size_t)i), NULL, 0), GW_OK);
}

/* ---- The formats, from their definitions --------------------------------------------------------
 */

typedef struct format {
    const char *spec;
    int mantissa, bias;
    unsigned finite; /* magnitudes 0 to finite - 1 are numbers */
    double greatest;
} format_t;

static const format_t formats[] = {
    {"fp8e4m3:block=512", 3, 7, 0x7F, 448.0},
    {"fp8e5m2:block=512", 2, 15, 0x7C, 57344.0},
    {"mxfp4", 1, 1, 8, 6.0},
    {"nvfp4", 1, 1, 8, 6.0},
};
enum { FORMATS = sizeof formats / sizeof *formats };

/* (-1)^s * 2^(e - bias) * (1 + m / 2^M), or without the 1 and with e = 1 where e is 0. */
static double number(const format_t *f, unsigned magnitude)
{
    int e = (int)(magnitude >> f->mantissa);
    double m = ldexp(magnitude & ((1u << f->mantissa) - 1), -f->mantissa);
    return e ? ldexp(1 + m, e - f->bias) : ldexp(m, 1 - f->bias);
}

/* Code i of a payload whose scale is 1. */
static unsigned code_at(const format_t *f, size_t i)
{
    size_t meta = f->mantissa > 1 ? 2 : f->spec[0] == 'm' ? 32 : 4 + 64;
    return f->mantissa > 1 ? payload[meta + i] : payload[meta + i / 2] >> i % 2 * 4 & 15;
}

static unsigned sign_bit(const format_t *f)
{
    return f->mantissa > 1 ? 0x80 : 8;
}

START_TEST(numbers_of_the_definition)
{
    ck_assert(number(&formats[0], 0x7E) == 448 && number(&formats[0], 1) == 0x1p-9);
    ck_assert(number(&formats[1], 0x7B) == 57344 && number(&formats[1], 1) == 0x1p-16);
    static const double e2m1[] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
    for (unsigned i = 0; i < 8; i++)
        ck_assert(number(&formats[2], i) == e2m1[i]);
}
END_TEST

/* Each number codes to itself, and each middle to the even neighbour; a step of binary32 beside a
 * middle to the nearer one. Both signs. Each block has the greatest number in it: the scale is 1.
 */
static size_t lay_out(const format_t *f, unsigned *expected)
{
    size_t n = 0;
    for (unsigned c = 0; c < f->finite; c++)
        for (int k = 0; k < 8; k++, n++) {
            bool last = c + 1 == f->finite;
            float value = (float)number(f, c);
            float middle = last ? value : (float)((number(f, c) + number(f, c + 1)) / 2);
            float at[4] = {value, middle, nextafterf(middle, 0), nextafterf(middle, INFINITY)};
            unsigned code[4] = {c, c + (c & 1), c, c + 1};
            if (n % 16 == 0) { /* of every block */
                x[n] = (float)f->greatest;
                expected[n++] = f->finite - 1;
            }
            int kind = last ? 0 : k / 2;
            x[n] = k % 2 ? -at[kind] : at[kind];
            expected[n] = code[kind] | (k % 2 ? sign_bit(f) : 0);
        }
    return n;
}

START_TEST(every_code_and_every_tie)
{
    static unsigned expected[4096];
    const format_t *f = &formats[_i % FORMATS];
    gw_coder_t coder = coder_of(f->spec);
    size_t n = lay_out(f, expected), block = f->mantissa > 1 ? 512 : 1024;
    use_tier(_i / FORMATS);
    for (size_t i = n; i < 4096; i++) {
        x[i] = i % 16 ? 0.0f : (float)f->greatest;
        expected[i] = i % 16 ? 0 : f->finite - 1;
    }
    for (size_t b = 0; b < 4096; b += block) {
        memmove(x, x + (b ? block : 0), (4096 - b) * sizeof *x);
        decode(&coder, encode(&coder, block), block);
        for (size_t i = 0; i < block; i++) {
            unsigned code = code_at(f, i), magnitude = code & (sign_bit(f) - 1);
            double value = number(f, magnitude);
            gw_check(code == expected[b + i], "%s: %a became %02x, expected %02x", f->spec,
                     (double)x[i], code, expected[b + i]);
            gw_check((double)y[i] == (code & sign_bit(f) ? -value : value), "%s: %02x is %a",
                     f->spec, code, (double)y[i]);
        }
    }
}
END_TEST

/* Every byte, also those that no encoder writes, decodes to what the format says. */
START_TEST(every_byte_of_8_bits_decodes)
{
    bool e5m2 = _i % 2;
    const format_t *f = &formats[e5m2];
    gw_coder_t coder = coder_of(e5m2 ? "fp8e5m2:block=256" : "fp8e4m3:block=256");
    use_tier(_i / 2);
    gw__store16(payload, 0x3F80 + 0x80); /* 2 */
    for (unsigned c = 0; c < 256; c++)
        payload[2 + c] = (uint8_t)c;
    decode(&coder, 258, 256);
    for (unsigned c = 0; c < 256; c++) {
        unsigned magnitude = c & 0x7F;
        double value = (c & 0x80 ? -2 : 2) * number(f, magnitude);
        if (magnitude < f->finite)
            gw_check((double)y[c] == value && !signbit(y[c]) == !(c & 0x80), "%02x", c);
        else if (e5m2 && magnitude == 0x7C)
            gw_check(isinf(y[c]) && !signbit(y[c]) == !(c & 0x80), "%02x", c);
        else
            gw_check(gw__float_bits(y[c]) == GW_NAN_BITS, "%02x", c);
    }
}
END_TEST

/* Every pattern of 16 bits comes back from a cast as it was, but for NaN, which is made quiet. */
START_TEST(every_half_survives)
{
    bool bf16 = _i % 2;
    gw_coder_t coder = coder_of(bf16 ? "bf16" : "fp16");
    const gw_cast_kernels_t *cast = &gw__kernels_of("ref")->cast;
    static uint16_t half[N];
    size_t special = 0;
    use_tier(_i / 2);
    for (unsigned i = 0; i < N; i++)
        half[i] = (uint16_t)i;
    (bf16 ? cast->bf16_to_f32 : cast->f16_to_f32)(half, x, N);
    for (unsigned i = 0; i < N; i++)
        special += !isfinite(x[i]);
    gw_encode_t in = {.src = x, .count = N};
    size_t length;
    ck_assert_int_eq(coder.family->encode(&coder, &in, payload, ROOM, &length), GW_OK);
    ck_assert_uint_eq(in.poisoned, special);
    (bf16 ? cast->f32_to_bf16 : cast->f32_to_f16)(x, half, N);
    ck_assert_mem_eq(payload, half, length);
    decode(&coder, length, N);
    ck_assert_mem_eq(y, x, sizeof x);
}
END_TEST

START_TEST(casts_saturate)
{
    static const struct {
        float value, fp16, bf16;
    } cases[] = {
        {65504.0f, 65504.0f, 65536.0f},       {65519.996f, 65504.0f, 65536.0f},
        {65520.0f, 65504.0f, 65536.0f},       {1e6f, 65504.0f, 999424.0f},
        {0x1.FEp127f, 65504.0f, 0x1.FEp127f}, {0x1.FEFFFEp127f, 65504.0f, 0x1.FEp127f},
        {0x1.FFp127f, 65504.0f, 0x1.FEp127f}, {FLT_MAX, 65504.0f, 0x1.FEp127f},
    };
    enum { CASES = sizeof cases / sizeof *cases };
    static float residual[64];
    use_tier(_i);
    for (int bf16 = 0; bf16 < 2; bf16++)
        for (int ef = 0; ef < 2; ef++) {
            gw_coder_t coder = coder_of(bf16 ? "bf16" : "fp16");
            size_t length;
            for (int i = 0; i < 64; i++)
                x[i] = i / CASES % 2 ? -cases[i % CASES].value : cases[i % CASES].value;
            memset(residual, 0, sizeof residual);
            gw_encode_t in = {.src = x, .count = 64, .residual = ef ? residual : NULL};
            ck_assert_int_eq(coder.family->encode(&coder, &in, payload, ROOM, &length), GW_OK);
            ck_assert_uint_eq(in.poisoned, 0);
            decode(&coder, length, 64);
            for (int i = 0; i < 64; i++) {
                float to = bf16 ? cases[i % CASES].bf16 : cases[i % CASES].fp16;
                ck_assert(y[i] == (x[i] < 0 ? -to : to));
                ck_assert(!ef || residual[i] == x[i] - y[i]);
            }
        }
}
END_TEST

/* ---- Scales -------------------------------------------------------------------------------------
 */

/* MXFP4: the power of two of the greatest magnitude, less 2; above 6 times it saturates. */
START_TEST(mx_scales)
{
    static const struct {
        float most;
        unsigned scale;
        float decoded;
    } cases[] = {
        {4.0f, 127, 4.0f},           {7.99f, 127, 6.0f},        {8.0f, 128, 8.0f},
        {1.0f, 125, 1.0f},           {0x1p-125f, 0, 0x1p-125f}, {0x1p-126f, 0, 0x1p-126f},
        {0x1.8p-128f, 0, 0x1p-127f}, {0.0f, 0, 0.0f},           {FLT_MAX, 252, 0x1.8p127f},
        {0x1p-149f, 0, 0.0f},
    };
    gw_coder_t coder = coder_of("mxfp4");
    use_tier(_i);
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        memset(x, 0, 1024 * sizeof *x);
        x[1000] = cases[c].most;
        decode(&coder, encode(&coder, 1024), 1024);
        ck_assert_uint_eq(payload[31], cases[c].scale);
        gw_check(y[1000] == cases[c].decoded, "%a became %a", (double)cases[c].most,
                 (double)y[1000]);
    }
}
END_TEST

/* NVFP4: the greatest of a group decodes to itself but for the roundings of two scales, a block of
 * 2^-9 of it still has its own scale, and one far below has none. */
START_TEST(nv_scales)
{
    static const float tops[] = {1.0f, 3e-7f, 12345.678f, 0x1p-100f, 0x1p120f, FLT_MAX};
    gw_coder_t coder = coder_of("nvfp4");
    use_tier(_i);
    for (size_t c = 0; c < sizeof tops / sizeof *tops; c++) {
        memset(x, 0, 1024 * sizeof *x);
        x[3] = tops[c];
        x[16] = -tops[c] * 0x1p-9f;
        x[32] = tops[c] * 0x1p-20f;
        decode(&coder, encode(&coder, 1024), 1024);
        float group = gw__load_float(payload);
        ck_assert(fabsf(group / (tops[c] / 2688.0f) - 1) < 1e-3f);
        ck_assert_uint_eq(payload[4], 0x7E);
        ck_assert_uint_eq(payload[6], 0);
        ck_assert(fabsf(y[3] / tops[c] - 1) < 1e-3f);
        ck_assert(fabsf(y[16] / x[16] - 1) < 0.05f);
        ck_assert(y[32] == 0.0f);
    }
}
END_TEST

/* fp8: greatest / greatest code, rounded up to bfloat16; the greatest never saturates. */
START_TEST(fp8_scales)
{
    uint64_t seed = 3;
    for (int round = 0; round < 20000; round++) {
        bool e5m2 = round % 2;
        gw_coder_t coder = coder_of(e5m2 ? "fp8e5m2:block=32" : "fp8e4m3:block=32");
        float top = e5m2 ? 57344.0f : 448.0f, scale;
        memset(x, 0, 32 * sizeof *x);
        x[7] = gw__float_of((uint32_t)gw_test_random(&seed) % 0x7F800000u);
        decode(&coder, encode(&coder, 32), 32);
        scale = gw__float_of((uint32_t)gw__load16(payload) << 16);
        bool ordinary = x[7] / top > 0x1p-126f && x[7] < 0x1.FEp127f;
        gw_check(!ordinary || (scale * top >= x[7] && scale * top < x[7] * 1.008f), "%a: scale %a",
                 (double)x[7], (double)scale);
        gw_check(x[7] < 0x1p-120f || fabsf(y[7] - x[7]) <= x[7] / (e5m2 ? 9 : 17), "%a became %a",
                 (double)x[7], (double)y[7]);
    }
}
END_TEST

/* ---- How much is lost ---------------------------------------------------------------------------
 */

/* Student-t with 4 degrees of freedom times a scale of its own per 16384 elements, or N(0,1). */
static void fill(bool heavy)
{
    uint64_t seed = 7;
    float scale = 1.0f;
    for (int i = 0; i < N; i++) {
        if (heavy && i % 16384 == 0)
            scale = expf(gw_test_normal(&seed));
        float chi = 0;
        for (int k = 0; heavy && k < 4; k++) {
            float z = gw_test_normal(&seed);
            chi += z * z / 4;
        }
        x[i] = scale * gw_test_normal(&seed) / (heavy ? sqrtf(chi) : 1.0f);
    }
}

/* NMSE on both, as measured by others for these formats; within a tenth, since the data are few. */
START_TEST(loss_is_as_known)
{
    static const struct {
        const char *spec;
        double normal, heavy;
    } known[] = {
        {"fp8e4m3", 0.00066, 0.0006},
        {"fp8e5m2", 0.0026, 0.0023},
        {"mxfp4", 0.0132, 0.0171},
        {"nvfp4", 0.0091, 0.0085},
    };
    gw_coder_t coder = coder_of(known[_i / 2].spec);
    double error = 0, norm = 0, expected = _i % 2 ? known[_i / 2].heavy : known[_i / 2].normal;
    fill(_i % 2);
    decode(&coder, encode(&coder, N), N);
    for (int i = 0; i < N; i++) {
        error += ((double)y[i] - (double)x[i]) * ((double)y[i] - (double)x[i]);
        norm += (double)x[i] * (double)x[i];
    }
    ck_assert_msg(fabs(error / norm / expected - 1) < 0.1, "%s: NMSE %g, expected %g", coder.spec,
                  error / norm, expected);
}
END_TEST

/* Blocks other than the default ones, on every kind of finite data and on random patterns of every
 * exponent; the defaults are in test_quant_bound.c. */
START_TEST(bounds_hold_in_any_block)
{
    static const char *const specs[] = {"fp8e4m3:block=32",
                                        "fp8e4m3:block=4096",
                                        "fp8e5m2:block=32",
                                        "fp8e5m2:block=4096",
                                        "mxfp4:group=512",
                                        "mxfp4:group=4096",
                                        "nvfp4:group=512",
                                        "nvfp4:group=4096",
                                        "fp16",
                                        "bf16"};
    enum { COUNT = 9001 };
    gw_coder_t coder = coder_of(specs[_i]);
    uint64_t seed = 1;
    size_t outside = 0;
    for (int f = 0; f <= FILL_FINITE; f++) {
        test_fill((test_fill_t)f, 5, x, COUNT);
        for (int i = 0; f == FILL_FINITE && i < COUNT; i++) /* 24 exponents at a time */
            x[i] = ldexpf(gw_test_normal(&seed),
                          i / 512 * 14 - 150 + (int)(gw_test_random(&seed) % 24));
        decode(&coder, encode(&coder, COUNT), COUNT);
        coder.family->error_bound(&coder, x, COUNT, limit);
        for (int i = 0; i < COUNT; i++)
            outside += !(fabs((double)y[i] - (double)x[i]) <= (double)limit[i]);
    }
    ck_assert_uint_eq(outside, 0);
}
END_TEST

/* With nine tenths of the declared bound the bound's own test would be red. */
START_TEST(bound_is_not_idle)
{
    static const char *const specs[] = {"fp16", "bf16", "fp8e4m3", "fp8e5m2", "mxfp4", "nvfp4"};
    gw_coder_t coder = coder_of(specs[_i]);
    double worst = 0;
    fill(false);
    decode(&coder, encode(&coder, N), N);
    coder.family->error_bound(&coder, x, N, limit);
    for (int i = 0; i < N; i++)
        worst = fmax(worst, fabs((double)y[i] - (double)x[i]) / (double)limit[i]);
    ck_assert_msg(worst > 0.9 && worst <= 1.0, "%s: %g of the bound", specs[_i], worst);
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("float formats");
    TCase *t = tcase_create("formats");
    int tiers = 0;
    while (gw__kernels_available((size_t)tiers))
        tiers++;
    tcase_set_timeout(t, 120);
    tcase_add_test(t, numbers_of_the_definition);
    tcase_add_loop_test(t, every_code_and_every_tie, 0, tiers * FORMATS);
    tcase_add_loop_test(t, every_byte_of_8_bits_decodes, 0, tiers * 2);
    tcase_add_loop_test(t, every_half_survives, 0, tiers * 2);
    tcase_add_loop_test(t, casts_saturate, 0, tiers);
    tcase_add_loop_test(t, mx_scales, 0, tiers);
    tcase_add_loop_test(t, nv_scales, 0, tiers);
    tcase_add_test(t, fp8_scales);
    tcase_add_loop_test(t, loss_is_as_known, 0, 8);
    tcase_add_loop_test(t, bounds_hold_in_any_block, 0, 10);
    tcase_add_loop_test(t, bound_is_not_idle, 0, 6);
    suite_add_tcase(s, t);
    return s;
}

int main(void)
{
    return gw_test_main(suite());
}
