#!/usr/bin/env bash
# TensorBoard's own reader over the event files of a real run that was stopped and resumed: every scalar is what metrics.jsonl
# has, and sound and pictures are those of the folder. Exits with 77, which ctest shows as skipped, where Debian has no
# TensorBoard and none is installed; the reason is printed.
#   tensorboard_test.sh SOURCE_FOLDER PROGRAM
set -euo pipefail
source=$1 program=$2
reader=$source/tests/read_events.py
if ! python3 "$reader" --there 2>/dev/null; then
  package=$(apt-cache policy python3-tensorboard tensorboard 2>/dev/null | awk '/^[a-z]/ {name = $1} /Candidate:/ && $2 != "(none)" {sub(":", "", name); print name; exit}')
  [ -n "$package" ] || { echo "skipped: $(. /etc/os-release && echo "$PRETTY_NAME") has no package of TensorBoard, and python3 finds none"; exit 77; }
  as_root=()
  [ "$(id -u)" -eq 0 ] || as_root=(sudo -n)
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$package" >/dev/null 2>&1 \
    && python3 "$reader" --there || { echo "skipped: $package cannot be installed here"; exit 77; }
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
"$program" data synth -o music --count 2 --seconds 1 --rate 8000 --format wav >/dev/null 2>&1
train=("$program" train soundstream --data music --out run --threads 1)
"${train[@]}" --config "$source/tests/tiny_codec.toml" --train.sample_every 4 --train.save_every 4 --steps 5 >/dev/null
"${train[@]}" --resume --steps 8 >/dev/null
python3 "$reader" run
