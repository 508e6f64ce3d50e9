# SPDX-License-Identifier: Apache-2.0
# Scripts that look at the tree and the built library from outside.
if(NOT GRADWIRE_SANITIZE)
  gw_box_test(structure)
endif()
