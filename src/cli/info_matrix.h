/* SPDX-License-Identifier: Apache-2.0 */
/* The matrix of codecs, element types and features in `gradwire info`. */
#ifndef GW_INFO_MATRIX_H
#define GW_INFO_MATRIX_H

#include "cli.h"

typedef enum gw_matrix_form {
    GW_MATRIX_TEXT,     /* a table for people */
    GW_MATRIX_MARKDOWN, /* the table in codecs/README.md */
    GW_MATRIX_JSON      /* objects with commas between them */
} gw_matrix_form_t;

/* One row for every name of every family that is registered, from the family's table and from what
 * it does with small samples: nothing is known here of any codec. */
void gw_matrix_print(FILE *out, gw_matrix_form_t form);

#endif
