/* SPDX-License-Identifier: Apache-2.0 */
/* Status codes: one enum, one table. */
#ifndef GRADWIRE_STATUS_H
#define GRADWIRE_STATUS_H

#if defined(__GNUC__)
#define GW_API               __attribute__((visibility("default")))
#define GW_PRINTF(fmt, args) __attribute__((format(printf, fmt, args)))
#else
#define GW_API
#define GW_PRINTF(fmt, args)
#endif

/*
 * The ranges tell what the caller has to give up:
 *     0         done
 *     > 0       not yet; ask again
 *    -1 ..  -19 this call only: nothing was changed, the objects stay usable
 *   -20 ..  -39 a resource of this process is missing
 *   -40 ..  -59 one frame: bytes that were received or read cannot be used
 *   -60 ..  -79 the communicator: a peer failed, is silent or does not agree
 *   -80 ..  -99 the process: a defect in Gradwire
 */
#define GW_STATUS_TABLE(X)                                                                         \
    X(GW_OK, 0, "done")                                                                            \
    X(GW_IN_PROGRESS, 1, "not finished yet")                                                       \
    X(GW_ERR_INVALID, -1, "invalid argument")                                                      \
    X(GW_ERR_UNSUPPORTED, -2, "combination not supported")                                         \
    X(GW_ERR_NO_SPACE, -3, "buffer too small")                                                     \
    X(GW_ERR_NOT_FOUND, -4, "no such name")                                                        \
    X(GW_ERR_BAD_SETTING, -5, "bad value of a setting")                                            \
    X(GW_ERR_CANCELED, -6, "canceled")                                                             \
    X(GW_ERR_NO_MEMORY, -20, "out of memory")                                                      \
    X(GW_ERR_IO, -21, "system call failed")                                                        \
    X(GW_ERR_NO_DEVICE, -22, "no usable network interface")                                        \
    X(GW_ERR_NO_MODULE, -23, "module missing or not usable here")                                  \
    X(GW_ERR_DEVICE, -24, "a GPU or its driver failed")                                            \
    X(GW_ERR_FRAME_MAGIC, -40, "not a Gradwire frame")                                             \
    X(GW_ERR_FRAME_REVISION, -41, "frame revision not known")                                      \
    X(GW_ERR_FRAME_HEADER, -42, "frame header not valid")                                          \
    X(GW_ERR_FRAME_LENGTH, -43, "frame truncated or too long")                                     \
    X(GW_ERR_FRAME_CHECKSUM, -44, "frame checksum wrong")                                          \
    X(GW_ERR_FRAME_PAYLOAD, -45, "frame payload not valid")                                        \
    X(GW_ERR_FRAME_MISMATCH, -46, "frame valid but not the one expected")                          \
    X(GW_ERR_PEER_FAILED, -60, "a peer failed or its connection broke")                            \
    X(GW_ERR_TIMEOUT, -61, "a peer was silent for too long")                                       \
    X(GW_ERR_SETTINGS_DIFFER, -62, "ranks do not agree on a setting")                              \
    X(GW_ERR_UNREACHABLE, -63, "a peer cannot be reached")                                         \
    X(GW_ERR_PEER_REFUSED, -64, "a peer could not set the communicator up")                        \
    X(GW_ERR_INTERNAL, -80, "internal error")

typedef enum gw_status {
#define GW_STATUS_ENUM(name, value, text) name = value,
    GW_STATUS_TABLE(GW_STATUS_ENUM)
#undef GW_STATUS_ENUM
} gw_status_t;

/* The text of a status, never NULL; static, any thread. */
GW_API const char *gw_status_text(gw_status_t status);

/* The enumerator's name ("GW_ERR_TIMEOUT"), or "GW_UNKNOWN"; static, any thread. */
GW_API const char *gw_status_name(gw_status_t status);

#endif
