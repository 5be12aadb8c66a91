# Completion of notifyutil(1) for fish. Put it into a folder of $fish_complete_path, for instance
# /usr/share/fish/vendor_completions.d.

# Lists the registered names on the bus that the command line chooses. Gives up soon and silently, and starts no service.
function __notifyutil_names
    set -l words (commandline -opc)
    set -l bus
    for index in (seq 2 (count $words))
        switch $words[$index]
            case --session --system
                set bus --bus (string sub --start 3 -- $words[$index])
            case --address
                set bus --bus $words[(math $index + 1)]
        end
    end
    timeout 1 notify-center list $bus --names --no-start 2>/dev/null </dev/null
end

# Whether the word that is completed follows one of these options.
function __notifyutil_after
    set -l words (commandline -opc)
    test (count $words) -gt 1; and contains -- $words[-1] $argv
end

complete -c notifyutil -f
complete -c notifyutil -s p -x -a '(__notifyutil_names)' -d 'Post a name'
complete -c notifyutil -s w -x -a '(__notifyutil_names)' -d 'Report every post of a name'
complete -c notifyutil -s 1 -x -a '(__notifyutil_names)' -d 'Report one post of a name'
complete -c notifyutil -s g -x -a '(__notifyutil_names)' -d 'Print the state of a name'
complete -c notifyutil -s s -x -a '(__notifyutil_names)' -d 'Set the state of a name'
complete -c notifyutil -l dump -d 'Print notifyd\'s status'
complete -c notifyutil -n '__notifyutil_after --dump' -F
complete -c notifyutil -o port -d 'Watch by notify_register_mach_port'
complete -c notifyutil -o file -d 'Watch by notify_register_file_descriptor'
complete -c notifyutil -o dispatch -d 'Watch by notify_register_dispatch'
complete -c notifyutil -o check -d 'Watch by notify_register_check'
complete -c notifyutil -o plain -d 'Watch by notify_register_plain'
complete -c notifyutil -o signal -d 'Watch by notify_register_signal'
complete -c notifyutil -o sig -d 'Watch by notify_register_signal'
complete -c notifyutil -n '__notifyutil_after -signal -sig' -a '1 2 10 12'
complete -c notifyutil -s z -x -d 'Pause after a post, in milliseconds'
complete -c notifyutil -s q -d 'Report nothing'
complete -c notifyutil -s v -d 'Report token, time, state and kind'
complete -c notifyutil -l ready -d 'Tell when the watching has begun'
complete -c notifyutil -s M -d 'As on Darwin'
complete -c notifyutil -s R -d 'As on Darwin'
complete -c notifyutil -l session -d 'Use the session bus'
complete -c notifyutil -l system -d 'Use the system bus'
complete -c notifyutil -l address -x -d 'Use the bus at an address'
complete -c notifyutil -s h -d 'Print a summary'
complete -c notifyutil -o help -d 'Print a summary'
complete -c notifyutil -l help -d 'Print a summary'
complete -c notifyutil -l version -d 'Print the version'
