/* SPDX-License-Identifier: Apache-2.0 */
/* A codec family from outside, for tests: eight bits an element and one scale a group. */
#ifndef MADE_CODEC_H
#define MADE_CODEC_H

#include <gradwire/codec.h>

/* Id 130, name "made": for gw_codec_register(). */
extern const gw_codec_t made_codec;

#endif
