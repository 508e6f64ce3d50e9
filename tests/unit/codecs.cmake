# SPDX-License-Identifier: Apache-2.0
gw_unit_test(quant_bound)
gw_unit_test(quant_codec)
