/* SPDX-License-Identifier: Apache-2.0 */
/* Codec specifications: any text is refused with a reason, or has a canonical form that means the
 * same. */
#include "fuzz.h"

static void check_canonical(const gw_coder_t *coder)
{
    static const size_t counts[] = {0, 1, 511, 512, 100000};
    gw_coder_t again;
    uint8_t params[GW_CODEC_HEADER_PARAMS];
    const gw_codec_t *family = coder->family;
    fuzz_require(memchr(coder->spec, '\0', sizeof coder->spec));
    fuzz_require(gw_coder_parse(coder->spec, &again, NULL, 0) == GW_OK);
    fuzz_require(again.family == family && strcmp(again.spec, coder->spec) == 0);
    fuzz_require(memcmp(again.value, coder->value, sizeof again.value) == 0);
    size_t grain = family->grain(coder), last = 0;
    fuzz_require(grain >= 1);
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        size_t bound = family->bound(coder, GW_F32, counts[i]);
        fuzz_require(bound >= last);
        last = bound;
    }
    family->put_params(coder, params);
    fuzz_require(family->get_params(params, &again) == GW_OK);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = fuzz_text(data, size), why[300];
    gw_coder_t coder;
    memset(why, '#', sizeof why);
    gw_status_t status = gw_coder_parse(text, &coder, why, sizeof why - 1);
    fuzz_require(status == GW_OK || status == GW_ERR_NOT_FOUND || status == GW_ERR_BAD_SETTING);
    fuzz_require(why[sizeof why - 1] == '#');
    fuzz_require(status == GW_OK || (memchr(why, '\0', sizeof why) && why[0]));
    if (status == GW_OK)
        check_canonical(&coder);
    free(text);
    return 0;
}
