# SPDX-License-Identifier: Apache-2.0
"""Where the names of points go, so that they lie on nothing: for bench/plot and the picture of bench/convergence."""
import math


def overlap(a, b):
    return max(0, min(a[2], b[2]) - max(a[0], b[0])) * max(0, min(a[3], b[3]) - max(a[1], b[1]))


def crosses(p, q, box):
    """Whether the segment from p to q meets the box: looked at in small steps."""
    return any(box[0] < p[0] + (q[0] - p[0]) * t / 24 < box[2] and box[1] < p[1] + (q[1] - p[1]) * t / 24 < box[3]
               for t in range(1, 24))


def candidates(radius):
    """Places of a label's nearest edge around its point, near ones first, those beside the point before all others."""
    for distance in (radius + 3, radius + 9, radius + 17, radius + 27, radius + 39, radius + 53, radius + 70, radius + 90):
        for degrees in (0, 180, 90, 270, 35, 325, 145, 215, 60, 300, 120, 240, 15, 345, 165, 195):
            yield distance, math.radians(degrees)


def place(point, width, height, distance, angle):
    """The box of a label whose nearest edge is `distance` away, in the direction `angle`."""
    c, s = math.cos(angle), math.sin(angle)
    x = point[0] + distance * c + width / 2 * (1 if c > 0.3 else -1 if c < -0.3 else 0)
    y = point[1] + distance * s + height / 2 * (1 if s > 0.3 else -1 if s < -0.3 else 0)
    return (x - width / 2, y - height / 2, x + width / 2, y + height / 2)


def end_of(point, box):
    """Where a line from the point to its label ends."""
    return (min(max(point[0], box[0]), box[2]), min(max(point[1], box[1]), box[3]))


def put_labels(points, sizes, frame, radius, walls):
    """Greedy: each label takes the cheapest place of its list, crowded points first. Pixels in, boxes out; labels stay off
    each other, other points and leaders, and off the line of segments `walls` where they can."""
    dots = [(x - radius, y - radius, x + radius, y + radius) for x, y in points]
    crowd = [sum(math.dist(p, q) < 60 for q in points) for p in points]
    boxes, leaders = {}, []
    for i in sorted(range(len(points)), key=lambda i: (-crowd[i], points[i])):
        best = None
        for rank, (distance, angle) in enumerate(candidates(radius)):
            box = place(points[i], *sizes[i], distance, angle)
            end = end_of(points[i], box)
            outside = box[0] < frame[0] or box[1] < frame[1] or box[2] > frame[2] or box[3] > frame[3]
            padded = (box[0] - 2, box[1] - 1, box[2] + 2, box[3] + 1)
            cost = 1000 * outside + rank * 0.01
            cost += sum(10 for other in boxes.values() if overlap(padded, other))
            cost += sum(8 for j, dot in enumerate(dots) if j != i and overlap(padded, dot))
            cost += sum(4 for p, q in leaders if crosses(p, q, padded))
            cost += sum(4 for other in boxes.values() if crosses(points[i], end, other))
            cost += sum(2 for j, dot in enumerate(dots)
                        if math.dist(points[i], points[j]) > 2 * radius and crosses(points[i], end, dot))
            cost += sum(0.15 for p, q in walls if crosses(p, q, padded))
            own = math.dist(points[i], end)
            cost += sum(0.5 for q in points if q != points[i] and math.dist(q, end_of(q, box)) < own + 2)
            if best is None or cost < best[0]:
                best = (cost, box, end)
            if best[0] <= 0.01 * rank:  # no place behind can be cheaper
                break
        boxes[i] = best[1]
        leaders.append((points[i], best[2]))
    return boxes
