# SPDX-License-Identifier: Apache-2.0
# The network lab and the demo, from outside.
gw_box_test(netlab LABELS netlab)
gw_box_test(netlab_demo LABELS netlab)
