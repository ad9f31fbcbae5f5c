#!/usr/bin/env bash
# SPEAR-TTS on your own recordings, all of it: tokenizer, pretraining on all speech, a reading model from the
# little speech that has text, texts for the rest, and the model that turns text into speech tokens.
# Every step goes on where it stopped: after a crash, start the same command again.
#
#   recipes/spear_tts/from_recordings.sh RECORDINGS OUT
#
# RECORDINGS: a folder (speech.wav with speech.txt beside it where the text is known) or a manifest.
# Settings, as variables:
#   SIZE        tiny, or default: which of recipes/spear_tts/spear_*.toml (tiny)
#   HELD_OUT    folder or manifest of recordings with text that nothing is trained on (a share of RECORDINGS)
#   TOKENIZER   a semantic tokenizer, else k-means over cepstral coefficients is fitted, with CLUSTERS (64)
#   GENERATED   share of generated pairs in the last training (0.9)
#   PROCS       processes that read (1)
#   KMEANS, PRETRAIN, READ, PAIRS, SPEAK: more words for one step, such as PRETRAIN="--steps 2000"
#   MELETE      the program (build/melete beside this script's repository, else melete)
set -euo pipefail

[ $# -eq 2 ] || { sed -n '2,20s/^# \{0,1\}//p' "$0" >&2; exit 2; }
recordings=$1 out=$2
here=$(cd "$(dirname "$0")" && pwd)
melete=${MELETE:-$here/../../build/melete}
command -v "$melete" > /dev/null || melete=melete
suffix=_${SIZE:-tiny}
[ "$suffix" = _default ] && suffix=
mkdir -p "$out"

step() { printf '\n== %s\n' "$1"; shift; "$@"; }
recipe() { echo "$here/spear_$1$suffix.toml"; }
# Words in a variable are words of the command: that is what they are for.
# shellcheck disable=SC2086
{
  tokenizer=${TOKENIZER:-$out/tokenizer.safetensors}
  [ -e "$tokenizer" ] || step "1/6 tokenizer" "$melete" train kmeans --features mfcc --clusters "${CLUSTERS:-64}" \
    --data "$recordings" -o "$tokenizer" ${KMEANS:-}
  step "2/6 tokens of all speech" "$melete" data tokenize "$recordings" --semantic "$tokenizer" -o "$out/tokens"
  held_out=()
  if [ -n "${HELD_OUT:-}" ]; then
    step "    and of what is held out" "$melete" data tokenize "$HELD_OUT" --semantic "$tokenizer" -o "$out/held-out"
    held_out=(--valid_data "$out/held-out")
  fi
  step "3/6 pretraining on all speech" "$melete" train spear-pretrain --config "$(recipe pretrain)" \
    --data "$out/tokens" "${held_out[@]}" --out "$out/pretrain" --auto_resume ${PRETRAIN:-}
  step "4/6 a model that reads, from the speech with text" "$melete" train spear-back-translate \
    --config "$(recipe back_translate)" --data "$out/tokens" "${held_out[@]}" --from "$out/pretrain" \
    --out "$out/read" --auto_resume ${READ:-}
  step "5/6 texts for the rest" "$melete" data back-translate "$out/tokens" --from "$out/read" -o "$out/pairs" \
    --procs "${PROCS:-1}" ${PAIRS:-}
  step "6/6 text to speech tokens" "$melete" train spear-text-to-semantic --config "$(recipe text_to_semantic)" \
    --data "$out/tokens" "${held_out[@]}" --generated_from "$out/pairs" --generated_share "${GENERATED:-0.9}" \
    --from "$out/pretrain" --out "$out/speak" --auto_resume ${SPEAK:-}
}
printf '\ndone: melete generate spear-tts --from %s --text "..." -o tokens.txt\n' "$out/speak"
