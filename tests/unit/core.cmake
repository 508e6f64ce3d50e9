# SPDX-License-Identifier: Apache-2.0
gw_unit_test(allreduce LABELS tsan)
gw_unit_test(plan)
gw_unit_test(residual LABELS tsan)
gw_unit_test(settings)
gw_unit_test(policy)
gw_unit_test(agreement)
gw_unit_test(comm LABELS tsan)
gw_unit_test(late LABELS tsan)
