#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The Python helper writes layouts that `gradwire info` reads; DDP's buckets lie where it says.
. "$(dirname "$0")/../lib.sh"
export PYTHONPATH=$GW_SOURCE/plugins/python PYTHONDONTWRITEBYTECODE=1
for name in $(compgen -v | grep '^GRADWIRE_'); do unset "$name"; done

info() { GRADWIRE_LAYOUT=$gw_tmp/layout "$GW_BUILD/bin/gradwire" info; }
shows() { info | grep -qE -- "$1"; }

write_flat() {
    /usr/bin/python3 - "$gw_tmp/layout" <<'PY'
import sys
from gradwire_layout import Layout
layout = Layout()
shapes = [("a.weight", (30, 50)), ('odd "name"\n', (7,)), ("empty", (0, 3)), ("scale", ()), ("conv", (8, 4, 3, 3))]
assert layout.add(shapes) == 1500 + 7 + 1 + 288
assert layout.add(shapes[:1], elements=1600, slot=2) == 1600
assert layout.add(reversed(shapes[:2]), slot=3) == 1507
layout.add(shapes[:1])
layout.add([("other name", (30, 50))])  # the same shapes: nothing new
for wrong in (lambda: layout.add([("x", (1500,))]), lambda: layout.add([]),
              lambda: layout.add_placed([("x", (4,), 0), ("y", (4,), 3)], 8), lambda: layout.add(shapes, elements=9)):
    try:
        wrong()
    except ValueError:
        continue
    raise SystemExit("a wrong layout was taken")
layout.write(sys.argv[1])
PY
}
tap 'layouts of plain shapes are written, wrong ones refused' write_flat
tap 'gradwire info reads them' shows 'a\.weight +30x50 at 0: q4'
tap 'a name that the file cannot hold is changed' shows 'odd _name__ +7 at 1500: exact'
tap 'a number without dimensions' shows 'scale +scalar at 1507: exact'
tap 'padding and a place' shows 'buffer of 1600 elements, place 2, 1 tensors'
tap 'the last parameter first' shows 'a\.weight +30x50 at 7: q4'

write_ddp() {
    timeout 120 /usr/bin/python3 - "$gw_tmp/layout" "$gw_tmp/init" <<'PY'
import os, sys
os.environ["OMP_NUM_THREADS"] = os.environ["OPENBLAS_NUM_THREADS"] = "1"
import torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from gradwire_layout import Layout
dist.init_process_group("gloo", init_method="file://" + sys.argv[2], rank=0, world_size=1)
torch.manual_seed(1)
model = torch.nn.Sequential(torch.nn.Linear(300, 500), torch.nn.LayerNorm(500), torch.nn.Linear(500, 900), torch.nn.ReLU(),
                            torch.nn.Linear(900, 10))
ddp = DistributedDataParallel(model, bucket_cap_mb=0.5)
def step():
    ddp.zero_grad()
    ddp(torch.randn(4, 300)).sum().backward()
layout = Layout()
layout.add_ddp(ddp, step)
layout.write(sys.argv[1])
# Every parameter once, all elements described.
named = {name: tuple(p.shape) for name, p in model.named_parameters()}
found = {name: shape for tensors in layout.buffers.values() for name, shape, _ in tensors}
assert found == named, (found, named)
assert len(layout.buffers) > 1 and sum(e for e, _ in layout.buffers) == sum(p.numel() for p in model.parameters())
flat = Layout()
flat.add(model.named_parameters())
assert sum(e for e, _ in flat.buffers) == sum(p.numel() for p in model.parameters())
dist.destroy_process_group()
PY
}
if /usr/bin/python3 -c 'import torch.distributed as d; assert d.is_gloo_available()' 2>/dev/null; then
    tap "DDP's buckets are recorded" write_ddp
    tap 'gradwire info reads them too' shows '0\.weight +500x300 at [0-9]+: q4'
    tap 'their biases stay exact' shows '0\.bias +500 at [0-9]+: exact \(one dimension\)'
else
    tap_skip "DDP's buckets are recorded" 'no torch with gloo for /usr/bin/python3'
fi
tap_done
