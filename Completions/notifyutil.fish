# Completion of notifyutil(1) for fish. Put it into a folder of $fish_complete_path, for instance
# /usr/share/fish/vendor_completions.d.

# The names that are registered on the bus that the command line chooses: quickly or not at all, and silently.
function __notifyutil_names
    set -l words (commandline -opc)
    set -l bus
    for index in (seq 2 (count $words))
        switch $words[$index]
            case --session --system
                set bus $words[$index]
            case --address
                set bus --address $words[(math $index + 1)]
        end
    end
    timeout 1 notifyutil $bus --list --json 2>/dev/null </dev/null |
        string replace --filter --regex '^\{"type":"[a-z]*","name":"([^"\\\\]*)",.*' '$1' | sort -u
end

# Whether the word that is completed follows one of these options.
function __notifyutil_after
    set -l words (commandline -opc)
    test (count $words) -gt 1; and contains -- $words[-1] $argv
end

# Whether it is among the names after --monitor.
function __notifyutil_monitors
    for word in (commandline -opc)[-1..2]
        switch $word
            case --monitor
                return 0
            case '-*'
                return 1
        end
    end
    return 1
end

complete -c notifyutil -f
complete -c notifyutil -s p -x -a '(__notifyutil_names)' -d 'Post a name'
complete -c notifyutil -s w -x -a '(__notifyutil_names)' -d 'Report every post of a name'
complete -c notifyutil -s 1 -x -a '(__notifyutil_names)' -d 'Report one post of a name'
complete -c notifyutil -s g -x -a '(__notifyutil_names)' -d 'Print the state of a name'
complete -c notifyutil -s s -x -a '(__notifyutil_names)' -d 'Set the state of a name'
complete -c notifyutil -l list -d 'Print who is registered'
complete -c notifyutil -l monitor -d 'Report all posts'
complete -c notifyutil -l dump -d 'Print notifyd\'s status'
complete -c notifyutil -n '__notifyutil_after --list; or __notifyutil_monitors' -a '(__notifyutil_names)'
complete -c notifyutil -n '__notifyutil_after --dump' -F
complete -c notifyutil -o port -d 'Watch by notify_register_mach_port'
complete -c notifyutil -o file -d 'Watch by notify_register_file_descriptor'
complete -c notifyutil -o dispatch -d 'Watch by notify_register_dispatch'
complete -c notifyutil -o check -d 'Watch by notify_register_check'
complete -c notifyutil -o plain -d 'Watch by notify_register_plain'
complete -c notifyutil -o signal -d 'Watch by notify_register_signal'
complete -c notifyutil -o sig -d 'Watch by notify_register_signal'
complete -c notifyutil -n '__notifyutil_after -signal -sig' -a '1 2 10 12'
complete -c notifyutil -l distributed -d 'Use the distributed center'
complete -c notifyutil -l darwin -d 'Use the Darwin center'
complete -c notifyutil -l object -x -d 'Object of the distributed center'
complete -c notifyutil -l userinfo -x -d 'Payload of the distributed center, a JSON object'
complete -c notifyutil -s z -x -d 'Pause after a post, in milliseconds'
complete -c notifyutil -s q -d 'Report nothing'
complete -c notifyutil -s v -d 'Report token, time, state and kind'
complete -c notifyutil -l json -d 'Print JSON'
complete -c notifyutil -l ready -d 'Tell when the watching has begun'
complete -c notifyutil -s M -d 'As on Darwin'
complete -c notifyutil -s R -d 'As on Darwin'
complete -c notifyutil -l session -d 'Use the session bus'
complete -c notifyutil -l system -d 'Use the system bus'
complete -c notifyutil -l address -x -d 'Use the bus at an address'
complete -c notifyutil -s h -d 'Print a summary'
complete -c notifyutil -o help -d 'Print a summary'
complete -c notifyutil -l help -d 'Print a summary'
