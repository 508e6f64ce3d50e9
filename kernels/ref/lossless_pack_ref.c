/* SPDX-License-Identifier: Apache-2.0 */
/* The denser level of lossless: the exponent codes of a group of blocks in canonical Huffman codes.
 */
#include "ref.h"

#include "bytes.h"
#include "lossless_walk.h"

/*
 * A group (codecs/README.md): how it is kept; lengths of 16 Huffman codes; bytes of four streams;
 * the blocks without their codes; the streams. The codes of all coded blocks, two in a byte, are
 * one row of bytes; each stream has a quarter of it. Four streams, so that a processor decodes four
 * symbols at a time.
 */
enum { SYMBOLS = 16, LONGEST = 10, STREAMS = 4, SPARE = 8, KEPT = 0, CODED = 1 };
enum { AT_LENGTHS = 1, AT_STREAMS = 9, AT_BLOCKS = 17 };
enum { ROW = GW_LOSSLESS_GROUP / 2, TABLE = 1 << LONGEST };

/* ---- Codes --------------------------------------------------------------------------------------
 */

/* The lengths of Huffman codes for these counts, without a limit; returns the longest. Of equal
 * weights the node made first is taken first. At least two counts are not 0. */
static unsigned huffman(const uint32_t count[SYMBOLS], uint8_t length[SYMBOLS])
{
    uint32_t weight[2 * SYMBOLS];
    uint8_t parent[2 * SYMBOLS], depth[2 * SYMBOLS];
    bool open[2 * SYMBOLS];
    unsigned nodes = SYMBOLS, longest = 0;
    for (unsigned i = 0; i < SYMBOLS; i++) {
        weight[i] = count[i];
        open[i] = count[i] > 0;
    }
    for (;;) {
        unsigned least[2] = {2 * SYMBOLS, 2 * SYMBOLS};
        for (unsigned i = 0; i < nodes; i++) {
            if (!open[i])
                continue;
            if (least[0] == 2 * SYMBOLS || weight[i] < weight[least[0]]) {
                least[1] = least[0];
                least[0] = i;
            } else if (least[1] == 2 * SYMBOLS || weight[i] < weight[least[1]]) {
                least[1] = i;
            }
        }
        if (least[1] == 2 * SYMBOLS)
            break;
        weight[nodes] = weight[least[0]] + weight[least[1]];
        open[nodes] = true;
        open[least[0]] = open[least[1]] = false;
        parent[least[0]] = parent[least[1]] = (uint8_t)nodes++;
    }
    depth[nodes - 1] = 0;
    for (unsigned i = nodes - 1; i-- > 0;) {
        if (i < SYMBOLS && !count[i]) {
            length[i] = 0;
            continue;
        }
        depth[i] = (uint8_t)(depth[parent[i]] + 1);
        longest = depth[i] > longest ? depth[i] : longest;
        if (i < SYMBOLS)
            length[i] = depth[i];
    }
    return longest;
}

/* Halves the counts until no code is too long. A lone symbol gets a companion, so that every set
 * of lengths uses up all codes. */
static void choose_lengths(uint32_t count[SYMBOLS], uint8_t length[SYMBOLS])
{
    unsigned present = 0, last = 0;
    for (unsigned i = 0; i < SYMBOLS; i++)
        if (count[i]) {
            present++;
            last = i;
        }
    if (present < 2)
        count[last ? 0 : 1] = 1;
    if (present == 0)
        count[0] = 1;
    while (huffman(count, length) > LONGEST)
        for (unsigned i = 0; i < SYMBOLS; i++)
            count[i] = (count[i] + 1) / 2;
}

/* Canonical codes: by length, then by symbol; their first bit is the lowest. False when the lengths
 * are not those of a complete set. */
static bool make_codes(const uint8_t length[SYMBOLS], uint16_t code[SYMBOLS])
{
    unsigned next = 0;
    for (unsigned l = 1; l <= LONGEST; l++) {
        next <<= 1;
        for (unsigned i = 0; i < SYMBOLS; i++) {
            if (length[i] != l)
                continue;
            unsigned reversed = 0;
            for (unsigned b = 0; b < l; b++)
                reversed |= (next >> b & 1) << (l - 1 - b);
            code[i] = (uint16_t)reversed;
            if (++next > 1u << l)
                return false;
        }
    }
    return next == TABLE;
}

/* ---- Writing ------------------------------------------------------------------------------------
 */

/* Two symbols at once: the codes of both, the low one first, and their bits. */
typedef struct pair {
    uint32_t code, bits;
} pair_t;

static void make_pairs(const uint8_t length[SYMBOLS], const uint16_t code[SYMBOLS],
                       pair_t pair[256])
{
    for (unsigned i = 0; i < 256; i++) {
        unsigned low = i & 0xF, high = i >> 4;
        pair[i] = (pair_t){code[low] | (uint32_t)code[high] << length[low],
                           (uint32_t)length[low] + length[high]};
    }
}

/* Appends one pair; at most 2 LONGEST bits. */
static inline void put_pair(const pair_t *pair, uint64_t *bits, unsigned *held)
{
    *bits |= (uint64_t)pair->code << *held;
    *held += pair->bits;
}

/* Writes the whole bytes, and up to SPARE bytes behind them. */
static inline uint8_t *flush(uint8_t *out, uint64_t *bits, unsigned *held)
{
    gw__store64(out, *bits);
    out += *held >> 3;
    *bits >>= *held & ~7u;
    *held &= 7;
    return out;
}

/* Returns the bytes of a stream. */
static size_t write_stream(const uint8_t *row, size_t n, const pair_t pair[256], uint8_t *dst)
{
    uint64_t bits = 0;
    unsigned held = 0;
    uint8_t *out = dst;
    size_t i = 0;
    for (; i + 2 <= n; i += 2) {
        put_pair(&pair[row[i]], &bits, &held);
        put_pair(&pair[row[i + 1]], &bits, &held);
        out = flush(out, &bits, &held);
    }
    if (i < n)
        put_pair(&pair[row[i]], &bits, &held);
    out = flush(out, &bits, &held);
    if (held)
        *out++ = (uint8_t)bits;
    return (size_t)(out - dst);
}

/* The codes of all coded blocks; returns how many bytes. */
static size_t collect(gw_dtype_t dtype, const uint8_t *blocks, size_t count, uint8_t *row)
{
    size_t used = 0;
    for (size_t i = 0; i < count; i += GW_LOSSLESS_BLOCK) {
        size_t n = gw__lossless_elements(i, count);
        size_t codes = gw__lossless_codes(n, blocks);
        memcpy(row + used, blocks + GW_LOSSLESS_META, codes);
        used += codes;
        blocks += gw__lossless_bytes(dtype, n, blocks);
    }
    return used;
}

/* Everything but the codes; returns the end in dst. */
static uint8_t *copy_rest(gw_dtype_t dtype, const uint8_t *blocks, size_t count, uint8_t *dst)
{
    for (size_t i = 0; i < count; i += GW_LOSSLESS_BLOCK) {
        size_t n = gw__lossless_elements(i, count);
        size_t bytes = gw__lossless_bytes(dtype, n, blocks);
        size_t skip = gw__lossless_codes(n, blocks);
        memcpy(dst, blocks, GW_LOSSLESS_META);
        memcpy(dst + GW_LOSSLESS_META, blocks + GW_LOSSLESS_META + skip,
               bytes - GW_LOSSLESS_META - skip);
        dst += bytes - skip;
        blocks += bytes;
    }
    return dst;
}

static size_t length_of(gw_dtype_t dtype, const uint8_t *blocks, size_t count)
{
    size_t used = 0;
    for (size_t i = 0; i < count; i += GW_LOSSLESS_BLOCK)
        used += gw__lossless_bytes(dtype, gw__lossless_elements(i, count), blocks + used);
    return used;
}

static size_t keep(const uint8_t *blocks, size_t length, uint8_t *dst)
{
    dst[0] = KEPT;
    memcpy(dst + 1, blocks, length);
    return length + 1;
}

/* The part of a row that stream k has. */
static size_t part_of(size_t row, unsigned k, size_t *first)
{
    size_t each = (row + STREAMS - 1) / STREAMS;
    *first = k * each < row ? k * each : row;
    return row - *first < each ? row - *first : each;
}

size_t gw__lossless_ref_pack(gw_dtype_t dtype, const uint8_t *blocks, size_t count, uint8_t *dst)
{
    uint8_t row[ROW], length[SYMBOLS];
    uint16_t code[SYMBOLS] = {0};
    uint32_t pairs_seen[256] = {0}, seen[SYMBOLS] = {0};
    pair_t pair[256];
    size_t first, bits = 0, used = collect(dtype, blocks, count, row);
    size_t whole = length_of(dtype, blocks, count);
    for (size_t i = 0; i < used; i++)
        pairs_seen[row[i]]++;
    for (unsigned i = 0; i < 256; i++) {
        seen[i & 0xF] += pairs_seen[i];
        seen[i >> 4] += pairs_seen[i];
    }
    choose_lengths(seen, length);
    for (unsigned i = 0; i < 256; i++)
        bits += pairs_seen[i] * ((size_t)length[i & 0xF] + length[i >> 4]);
    if (AT_BLOCKS + bits / 8 + STREAMS + SPARE >= used)
        return keep(blocks, whole, dst);
    make_codes(length, code);
    make_pairs(length, code, pair);
    dst[0] = CODED;
    for (unsigned i = 0; i < SYMBOLS / 2; i++)
        dst[AT_LENGTHS + i] = (uint8_t)(length[2 * i] | length[2 * i + 1] << 4);
    uint8_t *out = copy_rest(dtype, blocks, count, dst + AT_BLOCKS);
    for (unsigned k = 0; k < STREAMS; k++) {
        size_t n = part_of(used, k, &first);
        size_t bytes = write_stream(row + first, n, pair, out);
        gw__store16(dst + AT_STREAMS + 2 * k, (uint16_t)bytes);
        out += bytes;
    }
    return (size_t)(out - dst);
}

/* ---- Reading ------------------------------------------------------------------------------------
 */

/* What the next LONGEST bits begin with: its symbol and its bits. */
typedef struct entry {
    uint8_t symbol, bits;
} entry_t;

static void make_table(const uint8_t length[SYMBOLS], const uint16_t code[SYMBOLS],
                       entry_t table[TABLE])
{
    for (unsigned i = 0; i < SYMBOLS; i++)
        for (unsigned at = code[i]; length[i] && at < TABLE; at += 1u << length[i])
            table[at] = (entry_t){(uint8_t)i, length[i]};
}

typedef struct stream {
    const uint8_t *at, *end;
    uint64_t bits;
    unsigned held; /* bits that are read and not used */
    size_t behind; /* bytes taken as 0 behind the end */
    uint8_t *row;
} stream_t;

/* At least 56 bits, or all that there are and zeros. */
static inline void refill(stream_t *s)
{
    if (s->end - s->at >= 8) {
        s->bits |= gw__load64(s->at) << s->held;
        s->at += (63 - s->held) >> 3;
        s->held |= 56;
        return;
    }
    for (; s->held <= 56; s->held += 8) {
        if (s->at < s->end)
            s->bits |= (uint64_t)*s->at++ << s->held;
        else
            s->behind++;
    }
}

static inline unsigned take(stream_t *s, const entry_t table[TABLE])
{
    entry_t e = table[s->bits & (TABLE - 1)];
    s->bits >>= e.bits;
    s->held -= e.bits;
    return e.symbol;
}

/* A byte of the row; uses at most 2 LONGEST bits. */
static inline void take_pair(stream_t *s, const entry_t table[TABLE])
{
    unsigned low = take(s, table);
    *s->row++ = (uint8_t)(low | take(s, table) << 4);
}

/* Whether a stream that gave all its symbols ended where it should, in zeros. */
static bool is_used_up(const stream_t *s)
{
    size_t over = 8 * s->behind;
    return s->held >= over && s->held - over < 8 && s->bits == 0;
}

/* Two bytes of the row. */
static inline void take_pairs(stream_t *s, const entry_t table[TABLE])
{
    refill(s);
    take_pair(s, table);
    take_pair(s, table);
}

/* `n` more bytes, which end the stream. */
static bool finish_stream(stream_t *s, size_t n, const entry_t table[TABLE])
{
    for (size_t i = 0; i < n; i++) {
        refill(s);
        take_pair(s, table);
    }
    refill(s);
    return is_used_up(s);
}

/* 2 `turns` bytes of each row. The streams are copied: nothing points to the copies, so that they
 * stay in registers although bytes are written. */
static void read_four(stream_t s[STREAMS], size_t turns, const entry_t table[TABLE])
{
    stream_t a = s[0], b = s[1], c = s[2], d = s[3];
    for (size_t i = 0; i < turns; i++) {
        take_pairs(&a, table);
        take_pairs(&b, table);
        take_pairs(&c, table);
        take_pairs(&d, table);
    }
    s[0] = a;
    s[1] = b;
    s[2] = c;
    s[3] = d;
}

/* All four at a time, as far as the last one goes, which has the least. */
static bool read_streams(stream_t s[STREAMS], const size_t n[STREAMS], const entry_t table[TABLE])
{
    size_t turns = n[STREAMS - 1] / 2;
    read_four(s, turns, table);
    for (unsigned k = 0; k < STREAMS; k++)
        if (!finish_stream(&s[k], n[k] - 2 * turns, table))
            return false;
    return true;
}

/* Bytes of a block of n elements whose metadata begins `length` bytes; 0 when it is none that an
 * encoder writes, which may be longer than there is room for. */
static size_t bytes_of(gw_dtype_t dtype, size_t n, const uint8_t *src, size_t length)
{
    if (length < GW_LOSSLESS_META ||
        (src[1] <= GW_LOSSLESS_FAR_MAX && !gw__lossless_pays(dtype, n, src[1])))
        return 0;
    return gw__lossless_bytes(dtype, n, src);
}

/* The blocks of a group without their codes, as they lie in src; returns their bytes, 0 when they
 * do not fit into `length`. *row: bytes of codes that are missing. */
static size_t measure_rest(gw_dtype_t dtype, const uint8_t *src, size_t length, size_t count,
                           size_t *row)
{
    size_t used = 0;
    *row = 0;
    for (size_t i = 0; i < count; i += GW_LOSSLESS_BLOCK) {
        size_t n = gw__lossless_elements(i, count);
        size_t bytes = bytes_of(dtype, n, src + used, length - used);
        if (!bytes)
            return 0;
        bytes -= gw__lossless_codes(n, src + used);
        *row += gw__lossless_codes(n, src + used);
        if (length - used < bytes)
            return 0;
        used += bytes;
    }
    return used;
}

static void put_together(gw_dtype_t dtype, const uint8_t *src, const uint8_t *row, size_t count,
                         uint8_t *blocks)
{
    for (size_t i = 0; i < count; i += GW_LOSSLESS_BLOCK) {
        size_t n = gw__lossless_elements(i, count);
        size_t bytes = gw__lossless_bytes(dtype, n, src), codes = gw__lossless_codes(n, src);
        memcpy(blocks, src, GW_LOSSLESS_META);
        memcpy(blocks + GW_LOSSLESS_META, row, codes);
        memcpy(blocks + GW_LOSSLESS_META + codes, src + GW_LOSSLESS_META,
               bytes - GW_LOSSLESS_META - codes);
        row += codes;
        src += bytes - codes;
        blocks += bytes;
    }
}

/* Finds the four streams behind the blocks; returns the end of the group, 0 when they do not fit.
 */
static size_t find_streams(const uint8_t *src, size_t length, size_t at, size_t row_bytes,
                           uint8_t *row, stream_t s[STREAMS], size_t n[STREAMS])
{
    for (unsigned k = 0; k < STREAMS; k++) {
        size_t bytes = gw__load16(src + AT_STREAMS + 2 * k), first;
        if (length - at < bytes)
            return 0;
        n[k] = part_of(row_bytes, k, &first);
        s[k] = (stream_t){.at = src + at, .end = src + at + bytes, .row = row + first};
        at += bytes;
    }
    return at;
}

/* The blocks of a group that was kept as it was. */
static size_t unpack_kept(gw_dtype_t dtype, const uint8_t *src, size_t length, size_t count,
                          uint8_t *blocks, size_t *blocks_length)
{
    size_t used = 1;
    for (size_t i = 0; i < count; i += GW_LOSSLESS_BLOCK) {
        size_t n = gw__lossless_elements(i, count);
        size_t bytes = bytes_of(dtype, n, src + used, length - used);
        if (!bytes || length - used < bytes)
            return 0;
        used += bytes;
    }
    memcpy(blocks, src + 1, used - 1);
    *blocks_length = used - 1;
    return used;
}

size_t gw__lossless_ref_unpack(gw_dtype_t dtype, const uint8_t *src, size_t length, size_t count,
                               uint8_t *blocks, size_t *blocks_length)
{
    uint8_t row[ROW], lengths[SYMBOLS];
    uint16_t code[SYMBOLS] = {0};
    entry_t table[TABLE];
    stream_t s[STREAMS];
    size_t n[STREAMS], row_bytes;
    if (length < 1 || src[0] > CODED)
        return 0;
    if (src[0] == KEPT)
        return unpack_kept(dtype, src, length, count, blocks, blocks_length);
    if (length < AT_BLOCKS)
        return 0;
    for (unsigned i = 0; i < SYMBOLS; i++) {
        lengths[i] = src[AT_LENGTHS + i / 2] >> i % 2 * 4 & 0xF;
        if (lengths[i] > LONGEST)
            return 0;
    }
    size_t rest = measure_rest(dtype, src + AT_BLOCKS, length - AT_BLOCKS, count, &row_bytes);
    if (!rest || !make_codes(lengths, code))
        return 0;
    size_t end = find_streams(src, length, AT_BLOCKS + rest, row_bytes, row, s, n);
    make_table(lengths, code, table);
    if (!end || !read_streams(s, n, table))
        return 0;
    put_together(dtype, src + AT_BLOCKS, row, count, blocks);
    *blocks_length = rest + row_bytes;
    return end;
}
