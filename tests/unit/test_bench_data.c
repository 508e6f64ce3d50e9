/* SPDX-License-Identifier: Apache-2.0 */
/* The data of `gradwire bench codec`: files of any bytes, and the laws. */
#include "gw_test.h"

#include <fcntl.h>
#include <math.h>
#include <string.h>
#include <unistd.h>

#include "bench_codec.h"

static char path[] = "/tmp/gw_bench_data.XXXXXX.npy";
static char why[1024];

static void make_file(void)
{
    strcpy(path, "/tmp/gw_bench_data.XXXXXX.npy");
    int fd = mkstemps(path, 4);
    ck_assert_int_ge(fd, 0);
    close(fd);
}

static void remove_file(void)
{
    unlink(path);
}

static void write_file(const void *data, size_t length)
{
    FILE *f = fopen(path, "wb");
    ck_assert(f && fwrite(data, 1, length, f) == length && fclose(f) == 0);
}

/* An .npy file of format `version` with this dictionary and `bytes` of elements; its length. */
static size_t make_npy(int version, const char *dictionary, const void *elements, size_t bytes,
                       uint8_t *out)
{
    size_t length = strlen(dictionary), before = version == 1 ? 10 : 12;
    memcpy(out, "\x93NUMPY\0\0\0\0\0\0", 12);
    out[6] = (uint8_t)version;
    out[8] = (uint8_t)length;
    out[9] = (uint8_t)(length >> 8);
    memcpy(out + before, dictionary, length);
    memcpy(out + before + length, elements, bytes);
    return before + length + bytes;
}

static bool opens(gw_bench_file_t *file)
{
    memset(why, 0, sizeof why);
    bool ok = gw_bench_file_open(path, file, why, sizeof why);
    /* A refusal is one sentence that begins with the file's name. */
    gw_check(ok == (why[0] == '\0'), "%s", why);
    gw_check(ok || (strncmp(why, path, strlen(path)) == 0 && !strchr(why, '\n')), "%s", why);
    return ok;
}

static const float six[6] = {1, -2, 3, -4, 5, 6};
static const uint16_t six_half[6] = {0x3c00, 0xc000, 0x4200, 0xc400, 0x4500, 0x4600};

static const struct {
    int version;
    const char *dictionary;
    bool half;
} good[] = {
    {1, "{'descr': '<f4', 'fortran_order': False, 'shape': (6,), }", false},
    {1, "{'descr': '<f4', 'fortran_order': False, 'shape': (6,), }                \n", false},
    {2, "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }\n", false},
    {3, "{'shape': (1, 3, 2), 'descr': '<f4', 'fortran_order': False}\n", false},
    {1, "{\"descr\":\"<f4\",\"fortran_order\":False,\"shape\":(6,)}", false},
    {1, "{'descr': '<f2', 'fortran_order': False, 'shape': (3, 2), }\n", true},
};

START_TEST(good_files_are_read)
{
    uint8_t bytes[512];
    float out[6];
    gw_bench_source_t source;
    const void *elements = good[_i].half ? (const void *)six_half : (const void *)six;
    write_file(bytes, make_npy(good[_i].version, good[_i].dictionary, elements,
                               good[_i].half ? 12 : 24, bytes));
    ck_assert_msg(gw_bench_source_open(path, &source, why, sizeof why), "%s", why);
    ck_assert(source.file.npy);
    ck_assert_uint_eq(source.file.count, 6);
    ck_assert_int_eq(source.file.dtype, good[_i].half ? GW_F16 : GW_F32);
    ck_assert(gw_bench_source_fill(&source, GW_F32, 6, out, why, sizeof why));
    ck_assert_mem_eq(out, six, sizeof six);
    gw_bench_source_close(&source);
}
END_TEST

static const struct {
    int version;
    const char *dictionary;
    size_t bytes;
    const char *word;
} bad[] = {
    {1, "{'descr': '<f8', 'fortran_order': False, 'shape': (3,), }", 24, "'<f8'"},
    {1, "{'descr': '>f4', 'fortran_order': False, 'shape': (6,), }", 24, "'>f4'"},
    {1, "{'descr': '<i4', 'fortran_order': False, 'shape': (6,), }", 24, "'<i4'"},
    {1, "{'descr': '|V2', 'fortran_order': False, 'shape': (12,), }", 24, "'<f2'"},
    {1, "{'descr': [('x', '<f4')], 'fortran_order': False, 'shape': (6,), }", 24, "one type"},
    {1, "{'descr': '<f4', 'fortran_order': True, 'shape': (2, 3), }", 24, "ascontiguousarray"},
    {1, "{'descr': '<f4', 'fortran_order': False, 'shape': (0,), }", 0, "no elements"},
    {1, "{'descr': '<f4', 'fortran_order': False, 'shape': (5,), }", 24, "too long"},
    {1, "{'descr': '<f4', 'fortran_order': False, 'shape': (7,), }", 24, "truncated"},
    {1, "{'descr': '<f4', 'fortran_order': False, 'shape': (6), }", 24, "dictionary"},
    {1, "{'descr': '<f4', 'fortran_order': False, 'shape': (-6,), }", 24, "dictionary"},
    {1, "{'descr': '<f4', 'fortran_order': False, 'shape': (6, }", 24, "dictionary"},
    {1, "{'descr': '<f4', 'fortran_order': False, 'shape': (6 6), }", 24, "dictionary"},
    {1, "{'descr': '<f4', 'fortran_order': False}", 24, "dictionary"},
    {1, "{'descr': '<f4', 'fortran_order': 0, 'shape': (6,), }", 24, "dictionary"},
    {1, "{'descr': '<f4', 'fortran_order': False, 'shape': (6,), } x", 24, "dictionary"},
    {1, "{'descr': '<f4', 'descr': '<f4', 'shape': (6,), }", 24, "given twice"},
    {1, "{'descr': '<f4', 'fortran_order': False, 'shape': (6,), 'x': 1}", 24, "unknown"},
    {1, "{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999,)}", 24, "large"},
    {1, "{'descr': '<f4', 'fortran_order': False, 'shape': (4294967296, 4294967296)}", 24, "large"},
    {1, "{'descr': '<f4\x1b[2J', 'fortran_order': False, 'shape': (6,)}", 24, "one type"},
    {1, "", 24, "dictionary"},
    {0, "{'descr': '<f4', 'fortran_order': False, 'shape': (6,), }", 24, "format"},
    {4, "{'descr': '<f4', 'fortran_order': False, 'shape': (6,), }", 24, "format"},
};

START_TEST(bad_files_are_refused_with_the_reason)
{
    uint8_t bytes[512];
    gw_bench_file_t file;
    write_file(bytes, make_npy(bad[_i].version, bad[_i].dictionary, six, bad[_i].bytes, bytes));
    ck_assert_msg(!opens(&file), "opened: %s", bad[_i].dictionary);
    ck_assert_msg(strstr(why, bad[_i].word) != NULL, "'%s' is not in: %s", bad[_i].word, why);
}
END_TEST

START_TEST(every_truncation_is_refused)
{
    uint8_t bytes[512];
    gw_bench_file_t file;
    for (int i = 0; i < (int)(sizeof good / sizeof *good); i++) {
        size_t length =
            make_npy(good[i].version, good[i].dictionary, six, good[i].half ? 12 : 24, bytes);
        for (size_t cut = 0; cut < length; cut++) {
            write_file(bytes, cut);
            gw_check(!opens(&file), "%zu of %zu bytes were enough", cut, length);
        }
    }
}
END_TEST

/* What opens can be read from end to end; what does not has its sentence. */
static void open_and_read(void)
{
    gw_bench_file_t file;
    float out[64];
    if (!opens(&file))
        return;
    gw_check(file.count >= 1 && file.count <= 64, "%zu elements", file.count);
    gw_check(gw_bench_file_read(&file, 0, file.count, out), "not to be read");
    gw_check(!gw_bench_file_read(&file, 0, file.count + 1, out), "read beyond its end");
    gw_bench_file_close(&file);
}

START_TEST(any_byte_gives_an_answer)
{
    static const char likely[] = "{}(),:'\" 0123456789\xff<f4"; /* and the NUL */
    uint8_t bytes[512];
    uint64_t seed = 7;
    size_t length = make_npy(1, good[0].dictionary, six, 24, bytes);
    write_file(bytes, length);
    int fd = open(path, O_WRONLY);
    for (size_t at = 0; at < length - 24; at++)
        for (int value = 0; value < 256; value += 1 + (int)(gw_test_random(&seed) % 3)) {
            uint8_t changed = (uint8_t)value;
            gw_check(pwrite(fd, &changed, 1, (off_t)at) == 1, "write");
            open_and_read();
            gw_check(pwrite(fd, bytes + at, 1, (off_t)at) == 1, "write");
        }
    for (int round = 0; round < 3000; round++) {
        uint8_t mixed[512];
        memcpy(mixed, bytes, length);
        for (int k = 0; k < 8; k++)
            mixed[6 + gw_test_random(&seed) % (length - 6)] =
                (uint8_t)likely[gw_test_random(&seed) % sizeof likely];
        gw_check(pwrite(fd, mixed, length, 0) == (ssize_t)length, "write");
        open_and_read();
    }
    close(fd);
}
END_TEST

START_TEST(a_file_is_begun_anew_where_it_ends)
{
    enum { N = 3 * 4096 + 5 };
    static float out[N];
    gw_bench_source_t source;
    uint8_t bytes[512];
    write_file(bytes, make_npy(1, good[0].dictionary, six, 24, bytes));
    ck_assert(gw_bench_source_open(path, &source, why, sizeof why));
    ck_assert(gw_bench_source_fill(&source, GW_F32, N, out, why, sizeof why));
    for (int i = 0; i < N; i++)
        gw_check(out[i] == six[i % 6], "element %d is %g", i, (double)out[i]);
    ck_assert(gw_bench_source_fill(&source, GW_F32, 2, out + 10, why, sizeof why));
    ck_assert(out[10] == 1 && out[11] == -2 && out[12] == six[0]);
    gw_bench_source_close(&source);
}
END_TEST

static const struct {
    float value;
    gw_dtype_t dtype;
    const char *sentence; /* NULL: taken */
} odd[] = {
    {NAN, GW_F32, "element 3 is a NaN"},
    {INFINITY, GW_F32, "element 3 is infinite"},
    {-INFINITY, GW_BF16, "element 3 is infinite"},
    {1e6f, GW_F16, "element 3 is 1e+06, which f16 cannot hold"},
    {1e6f, GW_BF16, NULL},
    {65504, GW_F16, NULL},
};

START_TEST(values_that_cannot_be_measured_are_refused)
{
    float data[6], out[6];
    uint8_t bytes[512];
    gw_bench_source_t source;
    memcpy(data, six, sizeof data);
    data[3] = odd[_i].value;
    write_file(bytes, make_npy(1, good[0].dictionary, data, 24, bytes));
    ck_assert(gw_bench_source_open(path, &source, why, sizeof why));
    bool filled = gw_bench_source_fill(&source, odd[_i].dtype, 6, out, why, sizeof why);
    ck_assert_int_eq(filled, odd[_i].sentence == NULL);
    if (odd[_i].sentence)
        ck_assert_msg(strstr(why, odd[_i].sentence) != NULL, "%s", why);
    gw_bench_source_close(&source);
}
END_TEST

enum { N = 1 << 19 };
static float drawn[N], again[N];

static void draw(const char *name, float *out, size_t count)
{
    gw_bench_source_t source;
    ck_assert(gw_bench_source_open(name, &source, why, sizeof why));
    ck_assert(gw_bench_source_fill(&source, GW_F32, count, out, why, sizeof why));
    gw_bench_source_close(&source);
}

START_TEST(normal_data_is_normal)
{
    double m1 = 0, m2 = 0, m4 = 0, next = 0;
    draw("normal", drawn, N);
    for (int i = 0; i < N; i++) {
        double x = (double)drawn[i];
        m1 += x / N;
        m2 += x * x / N;
        m4 += x * x * x * x / N;
        next += x * (double)drawn[(i + 1) % N] / N;
    }
    /* Standard errors: 0.0014, 0.002, 0.0135, 0.0014. */
    ck_assert_msg(fabs(m1) < 0.006 && fabs(m2 - 1) < 0.008 && fabs(m4 - 3) < 0.06,
                  "moments %g %g %g", m1, m2, m4);
    ck_assert_msg(fabs(next) < 0.006, "neighbours correlate: %g", next);
}
END_TEST

static int compare(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

/* |t4| exceeds 0.7407 with probability 1/2 and 4.6041 with 1/100; N(0,1) has 3.82 as their
 * quotient. Scales of blocks cancel. */
START_TEST(gradient_data_has_its_law)
{
    double rms[N >> 16], least = 1e9, most = 0;
    size_t zeros = 0, whole_rows = 0;
    draw("gradient", drawn, N);
    for (size_t row = 0; row < N; row += 256) {
        size_t in_row = 0;
        for (size_t i = 0; i < 256; i++)
            in_row += drawn[row + i] == 0;
        zeros += in_row;
        whole_rows += in_row == 256;
    }
    double row_share = (double)whole_rows / (N / 256), share = (double)zeros / N;
    ck_assert_msg(fabs(row_share - 0.125) < 0.03, "%g of the rows are zero", row_share);
    ck_assert_msg(fabs(share - row_share - 0.005 * (1 - row_share)) < 0.001, "zeros: %g", share);
    for (size_t block = 0; block < N >> 16; block++) {
        size_t n = 0;
        for (size_t i = block << 16; i < (block + 1) << 16; i++)
            if (drawn[i] != 0)
                again[n++] = fabsf(drawn[i]);
        qsort(again, n, sizeof *again, compare);
        double tail = (double)again[n * 99 / 100] / (double)again[n / 2];
        ck_assert_msg(fabs(tail - 6.216) < 0.45, "block %zu: quotient %g", block, tail);
        rms[block] = (double)again[n / 2];
        least = fmin(least, rms[block]);
        most = fmax(most, rms[block]);
    }
    ck_assert_msg(most > 2 * least && least > 1e-5 && most < 0.1, "scales %g to %g", least, most);
}
END_TEST

START_TEST(data_do_not_depend_on_how_many_are_drawn)
{
    static const char *const names[] = {"normal", "gradient"};
    draw(names[_i], drawn, N);
    memset(again, 0, sizeof again);
    draw(names[_i], again, 4096 * 5 + 77);
    ck_assert_mem_eq(again, drawn, (4096 * 5 + 77) * sizeof *again);
}
END_TEST

START_TEST(a_fifo_or_directory_is_refused)
{
    gw_bench_file_t file;
    ck_assert(!gw_bench_file_open("/tmp", &file, why, sizeof why));
    ck_assert(strstr(why, "is a directory"));
    ck_assert(!gw_bench_file_open("/dev/null", &file, why, sizeof why));
    ck_assert(strstr(why, "not a regular file"));
    ck_assert(!gw_bench_file_open("/tmp/gw-no-such-file", &file, why, sizeof why));
    ck_assert(strstr(why, "No such file") && strstr(why, "gradient"));
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("bench data");
    TCase *t = tcase_create("files");
    tcase_set_timeout(t, 120);
    tcase_add_checked_fixture(t, make_file, remove_file);
    tcase_add_loop_test(t, good_files_are_read, 0, sizeof good / sizeof *good);
    tcase_add_loop_test(t, bad_files_are_refused_with_the_reason, 0, sizeof bad / sizeof *bad);
    tcase_add_test(t, every_truncation_is_refused);
    tcase_add_test(t, any_byte_gives_an_answer);
    tcase_add_test(t, a_file_is_begun_anew_where_it_ends);
    tcase_add_loop_test(t, values_that_cannot_be_measured_are_refused, 0, sizeof odd / sizeof *odd);
    suite_add_tcase(s, t);
    t = tcase_create("laws");
    tcase_set_timeout(t, 120);
    tcase_add_test(t, normal_data_is_normal);
    tcase_add_test(t, gradient_data_has_its_law);
    tcase_add_loop_test(t, data_do_not_depend_on_how_many_are_drawn, 0, 2);
    tcase_add_test(t, a_fifo_or_directory_is_refused);
    suite_add_tcase(s, t);
    return s;
}

int main(void)
{
    return gw_test_main(suite());
}
