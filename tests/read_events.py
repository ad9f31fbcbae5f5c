"""What TensorBoard's own reader finds in a run's event files, beside what metrics.jsonl and the folder have.

read_events.py RUN      compares; exits with 1 and a reason where they differ
read_events.py --there  exits with 0 where there is such a reader
"""

import glob
import json
import math
import struct
import sys

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

if sys.argv[1] == "--there":
    sys.exit(0)
run = sys.argv[1]
found = EventAccumulator(run, size_guidance={"scalars": 0, "images": 0, "audio": 0})
found.Reload()


def single(value):
    """As an event has it: 32 bits."""
    return struct.unpack("f", struct.pack("f", float(value)))[0]


def same(a, b):
    return a == b or (math.isnan(a) and math.isnan(b))


# tag -> {step: value}; a step that was made again after a resume counts as it was made last
wanted = {}
for line in open(f"{run}/metrics.jsonl"):
    row = json.loads(line)
    groups = []
    if row["kind"] == "step":
        groups = [("loss/", "losses"), ("gradient_norm/", "gradient_norms"), ("learning_rate/", "learning_rates")]
    elif row["kind"] == "validation":
        groups = [(f"validation_{row['label']}/", "losses")]
    for prefix, group in groups:
        for name, value in row[group].items():
            wanted.setdefault(prefix + name, {})[row["step"]] = single(value)

problems = []
for tag, steps in wanted.items():
    if tag not in found.Tags()["scalars"]:
        problems.append(f"{tag} is not there")
        continue
    read = {event.step: event.value for event in found.Scalars(tag)}
    if read.keys() != steps.keys():
        problems.append(f"{tag}: steps {sorted(read)} instead of {sorted(steps)}")
    problems += [f"{tag} at {step}: {read[step]} instead of {steps[step]}" for step in read if step in steps and not same(read[step], steps[step])]

sounds = {open(path, "rb").read() for path in glob.glob(f"{run}/samples/*/*.flac")}
pictures = {open(path, "rb").read() for path in glob.glob(f"{run}/pictures/*/*.png")}
heard = {event.encoded_audio_string for tag in found.Tags()["audio"] for event in found.Audio(tag)}
seen = {event.encoded_image_string for tag in found.Tags()["images"] for event in found.Images(tag)}
if heard != sounds or not sounds:
    problems.append(f"{len(heard)} sounds, of {len(sounds)} in the folder")
if seen != pictures or not pictures:
    problems.append(f"{len(seen)} pictures, of {len(pictures)} in the folder")

for problem in problems[:20]:
    print(problem)
if problems or not wanted:
    sys.exit(1)
print(f"TensorBoard reads {len(wanted)} curves, {len(heard)} sounds and {len(seen)} pictures as they are")
