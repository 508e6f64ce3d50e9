/* SPDX-License-Identifier: Apache-2.0 */
/* The rules of GRADWIRE_CONFIG: which codec a call gets, or that it is left alone. */
#ifndef GW_RULES_H
#define GW_RULES_H

#include <gradwire/codec.h>
#include <gradwire/context.h>

#include "layouts.h"

/* Bounds of a file: more than anybody writes, and little enough to be read in no time. */
enum {
    GW__RULES_FILE_MAX = 64 * 1024, /* bytes */
    GW__RULES_MAX = 256,            /* rules */
    GW__RULES_NAME_MAX = 64,        /* bytes of a name pattern, with its NUL */
    GW__RULES_TENSOR_MAX = 128,     /* bytes of a pattern of tensors' names, with its NUL */
    GW__RULES_TEXT_MAX = 1024       /* bytes of any rule as gw__rule_print writes it */
};

/* Both ends belong to it. {0, UINT64_MAX}: not asked for. */
typedef struct gw__range {
    uint64_t from, to;
} gw__range_t;

/* One rule. A plain value. */
typedef struct gw__rule {
    int line;        /* in the file, from 1 */
    unsigned dtypes; /* bit 1 << gw_dtype_t */
    gw__range_t bytes, ranks, comm, slot;
    bool has_name;
    char name[GW__RULES_NAME_MAX]; /* * stands for any characters */
    gw__range_t ndim, elements;    /* of a tensor */
    bool has_tensor;
    char tensor[GW__RULES_TENSOR_MAX]; /* likewise */
    bool exclude;
    gw_coder_t coder; /* unless exclude */
} gw__rule_t;

typedef struct gw__rules {
    gw__rule_t *rule;
    int count;
    uint64_t digest; /* of all rules in their canonical form: equal rules, equal digest */
} gw__rules_t;

/*
 * Parses the text of a file; any bytes give rules or an error. GW_ERR_BAD_SETTING with line, column
 * and reason in `why`; GW_ERR_NO_MEMORY. Free with gw__rules_free; nothing to free after an error.
 */
gw_status_t gw__rules_parse(const char *text, size_t length, gw__rules_t *out, char *why,
                            size_t why_size);

/* The same of a file. Anything but a regular file is refused, for it could make us wait. */
gw_status_t gw__rules_read(const char *path, gw__rules_t *out, char *why, size_t why_size);

void gw__rules_free(gw__rules_t *rules);

/* Whether a rule has a condition on tensors: then it decides on tensors, never on a call. */
bool gw__rule_names_tensors(const gw__rule_t *rule);

/* The first rule that matches this tensor of a call, or NULL; those without a condition on tensors
 * too. Pure. */
const gw__rule_t *gw__rules_match_tensor(const gw__rules_t *rules, const gw_call_t *call,
                                         const gw_comm_facts_t *facts, const gw_tensor_t *tensor);

/* The first rule for the call itself that matches, or NULL. Pure: looks at dtype, count, and the
 * facts. */
const gw__rule_t *gw__rules_match(const gw__rules_t *rules, const gw_call_t *call,
                                  const gw_comm_facts_t *facts);

/* A rule in its canonical form, which parses to the same rule. */
void gw__rule_print(const gw__rule_t *rule, char *out, size_t size);

/* Of all rules in their order and canonical form. */
uint64_t gw__rules_digest(const gw__rules_t *rules);

/* GW_RULE_COMM, GW_RULE_SLOT: what any of the rules asks for. */
unsigned gw__rules_facts(const gw__rules_t *rules);

#endif
