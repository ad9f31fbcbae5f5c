#!/usr/bin/env bash
# A recorded voice that says what it never said: 20 minutes of telephone prompts (Debian's
# asterisk-core-sounds-en-g722, CC-BY-SA-3.0, with their texts), aligner, durations, Voicebox, and the prompts that were
# held out, read from their texts alone. Every step goes on where it stopped: start the same command again.
#
#   recipes/voicebox/real_voice.sh OUT
#
# Settings, as variables:
#   SOUNDS      folder of the prompts as .g722 (/usr/share/asterisk/sounds/en_US_f_Allison, installed where it is missing)
#   TEXTS       core-sounds-en.txt, plain or .gz (that of the package asterisk-core-sounds-en)
#   VOCODER     a run of vocos for 80 bands of 16 kHz with mel.floor 1e-3; none: Griffin-Lim
#   ALIGN, DURATION, SPEAK, READ: more words for one step, such as SPEAK="--steps 20000 --precision bf16"
#   MELETE      the program (build/melete beside this script's repository, else melete)
set -euo pipefail

[ $# -eq 1 ] || { sed -n '2,17s/^# \{0,1\}//p' "$0" >&2; exit 2; }
out=$1
here=$(cd "$(dirname "$0")" && pwd)
melete=${MELETE:-$here/../../build/melete}
command -v "$melete" > /dev/null || melete=melete
sounds=${SOUNDS:-/usr/share/asterisk/sounds/en_US_f_Allison}
mkdir -p "$out"

as_root=()
[ "$(id -u)" -eq 0 ] || as_root=(sudo)
if [ ! -d "$sounds" ] || ! command -v ffmpeg > /dev/null || ! command -v espeak-ng > /dev/null; then
  "${as_root[@]}" apt-get install -y -qq --no-install-recommends asterisk-core-sounds-en-g722 ffmpeg espeak-ng > /dev/null
fi
texts=${TEXTS:-/usr/share/doc/asterisk-core-sounds-en/core-sounds-en.txt.gz}
if [ ! -e "$texts" ]; then # some systems leave documentation out: take it from the package itself
  [ -d "$out/package" ] || (cd "$out" && apt-get download -qq asterisk-core-sounds-en 2> /dev/null &&
    dpkg-deb -x asterisk-core-sounds-en_*.deb package && rm asterisk-core-sounds-en_*.deb)
  texts=$out/package/usr/share/doc/asterisk-core-sounds-en/core-sounds-en.txt.gz
fi

step() { printf '\n== %s\n' "$1"; shift; "$@"; }

# Every tenth prompt of 4 to 14 words is held out, and whatever says the same goes where it went. Tones and silence have
# no words; a batch would be as long as its longest prompt, so what has more than 50 words (20 s) is left out.
recordings() {
  local number=0 name text words count from to
  local -A said_in
  mkdir -p "$out/train" "$out/held-out"
  while IFS= read -r line; do
    name=${line%%: *} text=${line#*: } to=train
    from=$sounds/$name.g722
    count=$(wc -w <<< "$text")
    words=${text,,} words=${words//[^a-z0-9]/}
    if [ ! -e "$from" ] || [ -z "$words" ] || [ "$count" -gt 50 ]; then continue; fi
    if [ -n "${said_in[$words]:-}" ]; then
      to=${said_in[$words]}
    elif [ "$count" -ge 4 ] && [ "$count" -le 14 ]; then
      number=$((number + 1))
      [ $((number % 10)) -ne 0 ] || to=held-out
    fi
    said_in[$words]=$to
    printf '%s\n' "$text" > "$out/$to/${name//\//_}.txt"
    ffmpeg -nostdin -loglevel error -y -i "$from" -ar 16000 -ac 1 "$out/$to/${name//\//_}.wav"
  done < <(zcat -f "$texts" | grep -v '^;' | grep ': ' | grep -v '[[(<]')
  touch "$out/recordings-made"
}
[ -e "$out/recordings-made" ] || step "1/5 recordings and their texts" recordings

# Words in a variable are words of the command: that is what they are for.
# shellcheck disable=SC2086
{
  step "2/5 when phonemes are said" "$melete" train aligner --config "$here/aligner_tiny.toml" --data "$out/train" \
    --out "$out/aligner" --auto_resume --steps 700 --task.prior_until 350 --task.binarisation_from 400 ${ALIGN:-}
  [ -e "$out/timings.jsonl" ] ||
    "$melete" data align "$out/train" --from "$out/aligner" -o "$out/timings.jsonl"
  step "3/5 how long they last" "$melete" train duration --config "$here/duration_tiny.toml" --data "$out/timings.jsonl" \
    --out "$out/duration" --auto_resume ${DURATION:-}
  step "4/5 how they sound" "$melete" train voicebox --config "$here/speech.toml" --data "$out/train" \
    --timings "$out/timings.jsonl" --out "$out/voicebox" --auto_resume ${SPEAK:-}
  mkdir -p "$out/listen"
  cat "$out"/held-out/*.txt > "$out/listen/texts.txt"
  step "5/5 the held-out prompts, from their texts alone" "$melete" generate voicebox --from "$out/voicebox" \
    --durations "$out/duration" ${VOCODER:+--vocoder "$VOCODER"} --text_file "$out/listen/texts.txt" --steps 16 \
    --temperature 0.5 -o "$out/listen/read.wav" ${READ:-}
  printf '\nwhat frames and vocoder alone make of the recordings:\n'
  "$melete" generate voicebox --from "$out/voicebox" ${VOCODER:+--vocoder "$VOCODER"} --copy "$out/held-out" \
    -o "$out/listen/copy.wav"
}
printf '\nlisten to:  %s   (line by line what %s says)\nbeside it:  %s   (the recordings through frames and vocoder)\n' \
  "$out/listen/read_*.wav" "$out/listen/texts.txt" "$out/listen/copy_*.wav"
