#!/usr/bin/env bash
# Installs melete to a temporary folder, builds examples/encode_decode against it as a stranger would, and runs it.
#   install_example.sh SOURCE_FOLDER BUILD_FOLDER [cmake arguments, for example -DTorch_DIR=...]
set -euo pipefail
source=$1 build=$2
shift 2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
prefix=$work/prefix

fail() { echo "install_example: $*" >&2; exit 1; }

cmake --install "$build" --prefix "$prefix" >"$work/install.log" || { cat "$work/install.log" >&2; fail "install"; }
[ -f "$prefix/include/melete/systems/soundstream/load.h" ] || fail "no headers in $prefix/include/melete"
[ ! -e "$prefix/include/melete/cli" ] || fail "the command line's headers were installed"
# What is installed must not know where it was built, nor force our warnings on others.
if find "$prefix" -name '*.cmake' -exec grep -nE -- "$source|$build|-Werror|-Wshadow|melete_warnings|libc10" {} +; then
  fail "the CMake package holds the build's own paths or flags"
fi

# A copy of the example, so that nothing of the checkout is beside it.
cp -r "$source/examples/encode_decode" "$work/example"
{ cmake -G Ninja -S "$work/example" -B "$work/example/build" -DCMAKE_BUILD_TYPE=Release \
        -Dmelete_ROOT="$prefix" "$@" &&
  cmake --build "$work/example/build"; } >"$work/build.log" 2>&1 || { cat "$work/build.log" >&2; fail "build"; }
example=$work/example/build/encode_decode

status=0
"$example" 2>"$work/usage.txt" || status=$?
[ "$status" -eq 2 ] || fail "without words expected exit code 2, got $status"
grep -q '^usage: ' "$work/usage.txt" || fail "no usage was printed"
status=0
"$example" "$work/none" in.wav out.wav 2>"$work/error.txt" || status=$?
[ "$status" -eq 1 ] || fail "for a missing run expected exit code 1, got $status"

# A codec of a few hundred weights, one step old, from the installed program.
cd "$work"
"$prefix/bin/melete" data synth -o recordings --count 2 --seconds 1 --rate 8000 --format wav >/dev/null 2>&1
"$prefix/bin/melete" train soundstream --data recordings --out run --steps 1 --batch_size 1 \
  --data.segment_seconds 0.25 --data.valid_fraction 0 --model.codec.sample_rate_hz 8000 --model.codec.channels 2 \
  --model.codec.strides 4,8 --model.codec.channel_multiples 1,2 --model.codec.dim 4 --no-model.codec.attention \
  --model.codec.quantizer.quantizers 3 --model.codec.quantizer.codebook_size 8 --model.discriminator_scales 1 \
  --model.multi_scale.channels 2 --model.multi_scale.layers 1 --model.multi_scale.groups 2 \
  --model.stft.channels 2 --model.stft.channel_multiples 1 --model.stft.frequency_strides 2 \
  --model.stft.time_strides 2 >"$work/train.log" 2>&1 || { cat "$work/train.log" >&2; fail "train"; }
"$example" run recordings/music_000000.wav decoded/out.wav 2 >/dev/null 2>&1 && fail "wrote to a folder that is not there"
"$example" run recordings/music_000000.wav out.wav 2 | tee "$work/said.txt"
grep -q '2 of 3 quantizers' "$work/said.txt" || fail "expected 2 of 3 quantizers"
"$example" run recordings/music_000000.wav out.wav | grep -q '3 of 3 quantizers' || fail "expected the first 3 quantizers"
mkdir decoded && mv out.wav decoded/
"$prefix/bin/melete" data index decoded -o decoded.jsonl 2>/dev/null
grep -q '"rate_hz":8000' decoded.jsonl || fail "the decoded recording is not at the codec's rate"
grep -q '"frames":8000' decoded.jsonl || fail "the decoded recording has another length than the original"
echo "install and example: ok"
