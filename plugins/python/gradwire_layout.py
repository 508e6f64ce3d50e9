# SPDX-License-Identifier: Apache-2.0
"""Writes the file of GRADWIRE_LAYOUT from a PyTorch model: which parts of a flat gradient buffer are which tensors.

    from gradwire_layout import Layout

    layout = Layout()
    layout.add(model.named_parameters())              # one buffer for all gradients, in the order of the parameters
    layout.add(reversed(list(model.named_parameters())))  # or the last parameter first
    layout.write("model.layout")

    layout.add_ddp(DistributedDataParallel(model), step)  # or the buckets that DDP really makes; step(): one iteration

Anything with a name and a shape will do for add(); torch is needed for add_ddp() only. One rank writes the file, all ranks
get it. Calls are known by their number of elements: a buffer of another size than all of these goes as without a layout.
"""
import math

ELEMENTS_MAX = 65536  # tensors of a buffer
NAME_MAX = 255


def _size(shape):
    return math.prod(shape)


def _text(name):
    """A name as the file can hold it."""
    kept = "".join(c if c >= " " and c not in '"\x7f' else "_" for c in name).encode()[:NAME_MAX]
    return kept.decode(errors="ignore")


class Layout:
    """Buffers, each a list of (name, shape, offset)."""

    def __init__(self):
        self.buffers = {}  # by (elements, slot)

    def add(self, named, elements=None, slot=None):
        """A buffer that holds these tensors one behind the other. `named`: pairs of a name and a parameter or a shape;
        parameters that need no gradient are left out, as trainers do. `elements`: of the whole buffer when there is
        padding at its end. `slot`: its place in the trainer's sequence of all-reduces, from 1, to tell buffers of equal size
        apart. Returns the number of elements."""
        tensors, at = [], 0
        for name, value in named:
            if not getattr(value, "requires_grad", True):
                continue
            shape = tuple(getattr(value, "shape", value))
            if _size(shape) == 0:
                continue
            tensors.append((name, shape, at))
            at += _size(shape)
        return self.add_placed(tensors, at if elements is None else elements, slot)

    def add_placed(self, tensors, elements, slot=None):
        """A buffer of tensors (name, shape, offset), in order of offset. Buffers of equal size need slots unless they hold the same
        shapes; the first one's names count then."""
        tensors = [(_text(name), tuple(int(n) for n in shape), int(offset)) for name, shape, offset in tensors]
        if not tensors or len(tensors) > ELEMENTS_MAX:
            raise ValueError(f"{len(tensors)} tensors in a buffer; 1 to {ELEMENTS_MAX} are possible")
        end = 0
        for name, shape, offset in tensors:
            if offset < end or offset + _size(shape) > elements or len(shape) > 8:
                raise ValueError(f"tensor {name!r} of shape {shape} cannot begin at element {offset} of {elements}")
            end = offset + _size(shape)
        known = self.buffers.get((elements, slot))
        if known and [t[1:] for t in known] != [t[1:] for t in tensors]:
            raise ValueError(f"two buffers of {elements} elements hold different tensors: give them their slots")
        self.buffers.setdefault((elements, slot), tensors)
        return elements

    def add_ddp(self, ddp, step, iterations=3):
        """The buckets of a DistributedDataParallel model as they are in the last of some iterations: it makes them anew
        after the first, in the order in which gradients came. `step()` runs forward, backward and optimizer once. Puts a
        communication hook on the model, which sums as DDP itself does and cannot be taken off: use a model made for this, in a
        process group of one rank (gloo will do), of the same architecture and with the same DDP options as in training. Where
        the order of gradients differs from step to step, no layout can be right."""
        import torch.distributed as dist

        names = {id(p): name for name, p in ddp.module.named_parameters()}
        addresses = {p.data_ptr(): name for name, p in ddp.module.named_parameters()}
        seen = {}

        def hook(state, bucket):
            buffer = bucket.buffer()
            seen[bucket.index()] = (
                buffer.numel(),
                sorted(((names.get(id(p), addresses.get(p.data_ptr(), "")), tuple(p.shape),
                         (g.data_ptr() - buffer.data_ptr()) // buffer.element_size())
                        for p, g in zip(bucket.parameters(), bucket.gradients())), key=lambda t: t[2]))
            work = dist.all_reduce(buffer, async_op=True)
            return work.get_future().then(lambda f: f.value()[0].div_(dist.get_world_size()))

        ddp.register_comm_hook(None, hook)
        for _ in range(iterations):
            seen.clear()
            step()
        for _, (elements, tensors) in sorted(seen.items()):
            self.add_placed(tensors, elements)

    def lines(self):
        for (elements, slot), tensors in self.buffers.items():
            yield f"buffer {elements}" + (f" slot={slot}" if slot else "")
            for name, shape, offset in tensors:
                yield f'tensor "{name}" {"x".join(map(str, shape)) or "scalar"} at={offset}'

    def write(self, path):
        with open(path, "w", encoding="utf-8") as file:
            file.write("\n".join(self.lines()) + "\n")
