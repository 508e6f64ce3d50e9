/* SPDX-License-Identifier: Apache-2.0 */
/* Tests of the job's secret: the authentication code, and greetings of ranks that know it, do not
 * know it, or repeat what they have heard. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "comm_internal.h"
#include "gw_test.h"
#include "secret.h"
#include "transports.h"

/* Of the authors' reference implementation: key 00..0f, messages 00, 01, ...; the longer ones were
 * checked with OpenSSL's SIPHASH. */
START_TEST(mac_gives_the_published_values)
{
    static const struct {
        size_t size;
        uint8_t mac[16];
    } vectors[] = {
        {0,
         {0xA3, 0x81, 0x7F, 0x04, 0xBA, 0x25, 0xA8, 0xE6, 0x6D, 0xF6, 0x72, 0x14, 0xC7, 0x55, 0x02,
          0x93}},
        {1,
         {0xDA, 0x87, 0xC1, 0xD8, 0x6B, 0x99, 0xAF, 0x44, 0x34, 0x76, 0x59, 0x11, 0x9B, 0x22, 0xFC,
          0x45}},
        {7,
         {0xA1, 0xF1, 0xEB, 0xBE, 0xD8, 0xDB, 0xC1, 0x53, 0xC0, 0xB8, 0x4A, 0xA6, 0x1F, 0xF0, 0x82,
          0x39}},
        {8,
         {0x3B, 0x62, 0xA9, 0xBA, 0x62, 0x58, 0xF5, 0x61, 0x0F, 0x83, 0xE2, 0x64, 0xF3, 0x14, 0x97,
          0xB4}},
        {15,
         {0x54, 0x93, 0xE9, 0x99, 0x33, 0xB0, 0xA8, 0x11, 0x7E, 0x08, 0xEC, 0x0F, 0x97, 0xCF, 0xC3,
          0xD9}},
        {63,
         {0x51, 0x50, 0xD1, 0x77, 0x2F, 0x50, 0x83, 0x4A, 0x50, 0x3E, 0x06, 0x9A, 0x97, 0x3F, 0xBD,
          0x7C}},
    };
    uint8_t key[16], message[64], mac[16];
    for (int i = 0; i < 16; i++)
        key[i] = (uint8_t)i;
    for (int i = 0; i < 64; i++)
        message[i] = (uint8_t)i;
    for (size_t i = 0; i < sizeof vectors / sizeof vectors[0]; i++) {
        gw__mac(key, message, vectors[i].size, mac);
        gw_check(memcmp(mac, vectors[i].mac, 16) == 0, "the MAC of %zu bytes is another",
                 vectors[i].size);
    }
}
END_TEST

START_TEST(proofs_differ_in_any_bit)
{
    uint8_t a[16], b[16];
    ck_assert_int_eq(gw__secret_draw(a, sizeof a), GW_OK);
    memcpy(b, a, sizeof b);
    ck_assert(gw__proof_equal(a, b));
    for (int i = 0; i < 128; i++) {
        b[i / 8] ^= (uint8_t)(1 << i % 8);
        gw_check(!gw__proof_equal(a, b), "bit %d", i);
        b[i / 8] ^= (uint8_t)(1 << i % 8);
    }
    ck_assert_int_eq(gw__secret_draw(b, sizeof b), GW_OK);
    ck_assert(!gw__proof_equal(a, b));
}
END_TEST

/* ---- Greetings
 * -----------------------------------------------------------------------------------------------
 */

enum { RANKS = 3, WORDS = 32 };

/* What rank 1 said to rank 0 in each turn, and whether it says that again instead of its own words.
 */
static uint8_t heard[2][WORDS];
static bool repeats[2];

static gw_status_t spying_send(gw_link_t *link, int peer, uint64_t tag, const void *data,
                               size_t length, gw_request_t *req)
{
    static __thread uint8_t words[2][WORDS]; /* only rank 1's thread comes here */
    int turn = (int)(tag & 1);
    if (peer != 0 || length != WORDS)
        return gw__loopback.send(link, peer, tag, data, length, req);
    if (!repeats[turn])
        memcpy(heard[turn], data, WORDS);
    memcpy(words[turn], heard[turn], WORDS);
    return gw__loopback.send(link, peer, tag, words[turn], length, req);
}

typedef struct member {
    gw_loopback_rank_t oob;
    uint8_t secret[GW__SECRET_BYTES];
    uint32_t id;
    gw_status_t status;
    char why[256];
    pthread_t thread;
} member_t;

static void log_nothing(void *arg, gw_log_level_t level, const char *format, ...)
{
}

static void *member_main(void *arg)
{
    member_t *m = arg;
    gw_transport_t transport = gw__loopback;
    gw_comm_t *comm = calloc(1, sizeof *comm);
    gw_address_t addresses[RANKS];
    uint8_t mine[64] = {0}, all[RANKS][64];
    size_t length = sizeof mine;
    if (m->oob.rank == 1)
        transport.send = spying_send;
    gw_link_params_t params = {
        .rank = m->oob.rank, .size = RANKS, .timeout = 5, .arg = m->oob.world, .log = log_nothing};
    gw_check(gw_context_create(NULL, 0, &comm->context, NULL, 0) == GW_OK, "no context");
    comm->transport = &transport;
    comm->rank = m->oob.rank;
    comm->size = RANKS;
    comm->id = m->id;
    gw_check(transport.open(&params, &comm->link) == GW_OK, "no link");
    gw_check(transport.address(comm->link, mine, &length) == GW_OK, "no address");
    gw_loopback_allgather(&m->oob, mine, all, sizeof mine);
    for (int i = 0; i < RANKS; i++)
        addresses[i] = (gw_address_t){all[i], length};
    gw_check(transport.connect(comm->link, addresses) == GW_OK, "no connection");
    m->status = gw__comm_greet(comm, m->secret, m->why, sizeof m->why);
    gw_loopback_allgather(&m->oob, mine, all, sizeof mine);
    transport.close(comm->link);
    gw_context_free(comm->context);
    free(comm);
    return NULL;
}

static void greet(member_t members[RANKS])
{
    gw_loopback_t *world;
    ck_assert_int_eq(gw_loopback_create(RANKS, &world), GW_OK);
    for (int r = 0; r < RANKS; r++) {
        members[r].oob = (gw_loopback_rank_t){world, r};
        ck_assert_int_eq(pthread_create(&members[r].thread, NULL, member_main, &members[r]), 0);
    }
    for (int r = 0; r < RANKS; r++)
        pthread_join(members[r].thread, NULL);
    gw_loopback_free(world);
}

static void expect(const member_t *member, gw_status_t status, const char *sentence)
{
    ck_assert_msg(member->status == status && strstr(member->why, sentence), "rank %d: %s, \"%s\"",
                  member->oob.rank, gw_status_name(member->status), member->why);
}

START_TEST(ranks_that_know_the_secret_pass)
{
    member_t members[RANKS] = {{.secret = {1}}, {.secret = {1}}, {.secret = {1}}};
    greet(members);
    for (int r = 0; r < RANKS; r++)
        expect(&members[r], GW_OK, "");
}
END_TEST

START_TEST(another_secret_is_refused)
{
    member_t members[RANKS] = {{.secret = {1}}, {.secret = {1, [15] = 1}}, {.secret = {1}}};
    greet(members);
    expect(&members[0], GW_ERR_PEER_REFUSED, "who answers as rank 1");
    expect(&members[1], GW_ERR_PEER_REFUSED, "who answers as rank 0");
    expect(&members[2], GW_ERR_PEER_REFUSED, "who answers as rank 1");
}
END_TEST

START_TEST(another_communicator_is_refused)
{
    member_t members[RANKS] = {{.secret = {1}}, {.secret = {1}}, {.secret = {1}, .id = 7}};
    greet(members);
    expect(&members[0], GW_ERR_PEER_REFUSED, "who answers as rank 2");
}
END_TEST

/* What was said once, under the same secret, is no proof later: not even with a first turn of its
 * own. */
START_TEST(a_repeated_greeting_is_refused)
{
    member_t once[RANKS] = {{.secret = {1}}, {.secret = {1}}, {.secret = {1}}};
    greet(once);
    for (int both = 0; both < 2; both++) {
        member_t again[RANKS] = {{.secret = {1}}, {.secret = {1}}, {.secret = {1}}};
        repeats[0] = both;
        repeats[1] = true;
        greet(again);
        expect(&again[0], GW_ERR_PEER_REFUSED, "who answers as rank 1");
        expect(&again[1], both ? GW_ERR_PEER_REFUSED : GW_OK, ""); /* its nonce was not answered */
        expect(&again[2], GW_OK, "");
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("secret");
    TCase *mac = tcase_create("mac"), *greetings = tcase_create("greetings");
    tcase_set_timeout(greetings, 60);
    tcase_add_test(mac, mac_gives_the_published_values);
    tcase_add_test(mac, proofs_differ_in_any_bit);
    tcase_add_test(greetings, ranks_that_know_the_secret_pass);
    tcase_add_test(greetings, another_secret_is_refused);
    tcase_add_test(greetings, another_communicator_is_refused);
    tcase_add_test(greetings, a_repeated_greeting_is_refused);
    suite_add_tcase(suite, mac);
    suite_add_tcase(suite, greetings);
    return gw_test_main(suite);
}
