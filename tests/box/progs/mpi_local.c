/* SPDX-License-Identifier: Apache-2.0 */
/* Opens a module that uses MPI so that MPI is in no global scope, and runs it. */
#include <dlfcn.h>
#include <stdio.h>

int main(int argc, char **argv)
{
    void *module = argc > 1 ? dlopen(argv[1], RTLD_NOW | RTLD_LOCAL) : NULL;
    int (*run)(int, char **);
    *(void **)&run = module ? dlsym(module, "prog_main") : NULL;
    if (!run || dlsym(RTLD_DEFAULT, "PMPI_Allreduce")) {
        printf("not the situation that this program is for: %s\n",
               run ? "MPI is global" : dlerror());
        return 1;
    }
    return run(1, argv);
}
