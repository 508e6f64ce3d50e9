/* SPDX-License-Identifier: Apache-2.0 */
/* Gradwire's errors as MPI errors: one error code, of class MPI_ERR_OTHER, whose text is the last
 * failure's. */
#include "preload.h"

#include <pthread.h>
#include <stdio.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int code = MPI_ERR_OTHER; /* that until MPI has given us one of our own */

static const char *sentence(const gw_comm_t *comm, gw_status_t status)
{
    const char *text = gw__library.comm_error(comm);
    return text[0] ? text : gw__library.status_text(status);
}

/* MPI's texts are copied into MPI_MAX_ERROR_STRING bytes of the user's, so a longer one ends there.
 */
static int code_with_text(const char *text)
{
    char line[MPI_MAX_ERROR_STRING];
    snprintf(line, sizeof line - 1, "gradwire: %s", text);
    pthread_mutex_lock(&lock);
    int fresh;
    if (code == MPI_ERR_OTHER && gw__pmpi.Add_error_code(MPI_ERR_OTHER, &fresh) == MPI_SUCCESS)
        code = fresh;
    if (code != MPI_ERR_OTHER)
        gw__pmpi.Add_error_string(code, line);
    int result = code;
    pthread_mutex_unlock(&lock);
    return result;
}

int gw__error_raise(const gw__comm_state_t *state, gw_status_t status)
{
    int raised = code_with_text(sentence(state->comm, status));
    gw__pmpi.Comm_call_errhandler(state->handle, raised);
    return raised;
}
