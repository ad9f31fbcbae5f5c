#!/usr/bin/env bash
# Installs melete to a temporary folder, builds the projects of examples/ against it as a stranger would, and runs them.
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
own="(^|[\" ;:=(])($source|$build)(/|[\" ;>)]|\$)"
if find "$prefix" -name '*.cmake' -exec grep -nE -- "$own|-Werror|-Wshadow|melete_warnings|libc10" {} +; then
  fail "the CMake package holds the build's own paths or flags"
fi

# Copies of the examples, so that nothing of the checkout is beside them.
cp -r "$source/examples" "$work/examples"
for name in encode_decode own_dataset; do
  example=$work/examples/$name
  { cmake -G Ninja -S "$example" -B "$example/build" -DCMAKE_BUILD_TYPE=Release -Dmelete_ROOT="$prefix" "$@" &&
    cmake --build "$example/build"; } >"$work/build.log" 2>&1 || { cat "$work/build.log" >&2; fail "build $name"; }
  status=0
  "$example/build/$name" 2>"$work/usage.txt" || status=$?
  [ "$status" -eq 2 ] || fail "$name without words: expected exit code 2, got $status"
  grep -q '^usage: ' "$work/usage.txt" || fail "$name printed no usage"
done

example=$work/examples/encode_decode/build/encode_decode
status=0
"$example" "$work/none" in.wav out.wav 2>"$work/error.txt" || status=$?
[ "$status" -eq 1 ] || fail "for a missing run expected exit code 1, got $status"

# A codec of a few hundred weights, one step old, from the installed program.
cd "$work"
cp "$source/tests/tiny_codec.toml" tiny.toml
"$prefix/bin/melete" data synth -o recordings --count 2 --seconds 1 --rate 8000 --format wav >/dev/null 2>&1
"$prefix/bin/melete" train soundstream --config tiny.toml --data recordings --out run --steps 1 >"$work/train.log" 2>&1 ||
  { cat "$work/train.log" >&2; fail "train"; }
"$example" run recordings/music_000000.wav decoded/out.wav 2 >/dev/null 2>&1 && fail "wrote to a folder that is not there"
"$example" run recordings/music_000000.wav out.wav 2 | tee "$work/said.txt"
grep -q '2 of 3 quantizers' "$work/said.txt" || fail "expected 2 of 3 quantizers"
"$example" run recordings/music_000000.wav out.wav | grep -q '3 of 3 quantizers' || fail "expected the first 3 quantizers"
mkdir decoded && mv out.wav decoded/
"$prefix/bin/melete" data index decoded -o decoded.jsonl 2>/dev/null
grep -q '"rate_hz":8000' decoded.jsonl || fail "the decoded recording is not at the codec's rate"
grep -q '"frames":8000' decoded.jsonl || fail "the decoded recording has another length than the original"
# The stranger's own data: trained on, validated on, heard; and gone on with where it stopped.
example=$work/examples/own_dataset/build/own_dataset
"$example" none.toml glides 2 2>"$work/error.txt" && fail "trained without a recipe"
grep -q '^own_dataset: .*none.toml' "$work/error.txt" || fail "the missing recipe is not named"
[ ! -e glides ] || fail "a run folder was made for a recipe that is not there"
"$example" tiny.toml glides 2 >"$work/said.txt"
grep -q '^step 2 of 2: loss ' "$work/said.txt" || fail "own_dataset did not train"
grep -q '^held-out glides, online weights: loss ' "$work/said.txt" || fail "own_dataset did not validate"
grep -q '^listen to .*glide_[0-9]*_online.flac' "$work/said.txt" || fail "own_dataset wrote no samples"
"$example" tiny.toml glides 4 | tee "$work/said.txt"
grep -q '^step 3 of 4: ' "$work/said.txt" || fail "own_dataset did not go on with step 3"
grep -q '^step [12] of 4: ' "$work/said.txt" && fail "own_dataset began again"
"$prefix/bin/melete" codec encode recordings/music_000000.wav --from glides -o glide.tokens >/dev/null 2>&1 ||
  fail "melete cannot use the run of own_dataset"
echo "install and examples: ok"
