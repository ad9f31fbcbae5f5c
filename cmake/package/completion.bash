# Completion of melete's words in bash: asks the program's own help, so it knows every command, system and setting.
_melete() {
  local current=${COMP_WORDS[COMP_CWORD]} words=() word help
  for word in "${COMP_WORDS[@]:1:COMP_CWORD-1}"; do
    [[ $word == -* ]] && break
    words+=("$word")
  done
  help=$(melete help "${words[@]}" 2>/dev/null)
  if [[ $current == -* ]]; then
    # Own options are written with their dashes, settings as keys at the beginning of a line.
    COMPREPLY=($(compgen -W "$(grep -oE '(^| )--[a-zA-Z0-9_.-]+' <<<"$help"
      grep -oE '^  [a-z][a-z0-9_]*(\.[a-z0-9_]+)*  ' <<<"$help" | sed 's/^ */--/')" -- "$current"))
  elif [[ ${#words[@]} -eq 0 ]]; then
    COMPREPLY=($(compgen -W "$(sed -nE 's/^  ([a-z-]+) .*/\1/p' <<<"$help")" -- "$current"))
  elif [[ ${#words[@]} -eq 1 && $COMP_CWORD -eq 2 ]]; then
    # "<what>  ... (one of a, b, c)" in the help of a command.
    COMPREPLY=($(compgen -W "$(tr '\n' ' ' <<<"$help" | sed -nE 's/.*<[a-z]+>[^(]*\(one of ([^;)]*).*/\1/p' | tr ',' ' ')" -- "$current"))
    [[ ${#COMPREPLY[@]} -gt 0 ]] || COMPREPLY=($(compgen -f -- "$current"))
  else
    COMPREPLY=($(compgen -f -- "$current"))
  fi
}
complete -o filenames -F _melete melete
