# Completion of notifyutil(1) for bash. Install it as notifyutil in bash-completion's folder
# (/usr/share/bash-completion/completions), or source it.

_notifyutil() {
    local options='-h -help -q -v -z -M -R -port -file -check -dispatch -plain -signal -sig -p -w -1 -g -s --dump --ready
        --session --system --address --help --version'
    COMPREPLY=()

    # Readline splits words at colons and equals signs; join the parts again.
    local words=() word isOpen= index
    for ((index = 0; index <= COMP_CWORD; index++)); do
        word=${COMP_WORDS[index]}
        if ((${#words[@]} > 1)) && [[ ${words[-1]} != -* && (-n $isOpen || $word == [:=]*) ]]; then
            words[-1]+=$word
        else
            words+=("$word")
        fi
        [[ $word == *[:=] ]] && isOpen=1 || isOpen=
    done
    local last=$((${#words[@]} - 1))
    local current=${words[last]}

    # Finds the preceding option, the number of words since then, and the chosen bus.
    local option= distance=0 bus=()
    for ((index = 1; index < last; index++)); do
        word=${words[index]}
        case $word in
            --session | --system) bus=(--bus "${word#--}") ;;
            --address) bus=(--bus "${words[index + 1]}") ;;
        esac
        if [[ $word == -* ]]; then
            option=$word
            distance=$((last - index))
        fi
    done

    case $option:$distance in
        -p:1 | -w*:1 | -[0-9]*:1 | -g:1 | -s:1) _notifyutil_reply "$(_notifyutil_names)" ;;
        -s:2 | -z:1) ;;
        --address:1)
            _notifyutil_reply unix:path=
            compopt -o nospace 2>/dev/null
            ;;
        *)
            if [[ $current == -* ]]; then
                _notifyutil_reply "$options"
                return 0
            fi
            case $option:$distance in
                -signal:1 | -sig:1) _notifyutil_reply '1 2 10 12' ;;
                --dump:1)
                    compopt -o filenames 2>/dev/null
                    mapfile -t COMPREPLY < <(compgen -f -- "$current")
                    ;;
            esac
            # If an argument is optional, an option may follow, too.
            [[ -n $current ]] || _notifyutil_reply "$options"
            ;;
    esac
    return 0
}

# Adds the words that continue the current word, without the part that readline has split off.
_notifyutil_reply() {
    local cut=${current%"${current##*[:=]}"} word
    while read -r word; do COMPREPLY+=("${word#"$cut"}"); done < <(compgen -W "$1" -- "$current")
}

# Lists the registered names on that bus, without names that need quoting in a shell. Gives up soon and silently, and
# starts no service.
_notifyutil_names() {
    timeout 1 notify-center list "${bus[@]}" --names --no-start 2>/dev/null </dev/null | grep -x '[A-Za-z0-9_.@%+,:/-]*'
}

complete -F _notifyutil notifyutil
