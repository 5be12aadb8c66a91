/// The text of `-h` and of a wrong command line.
enum Usage {
    static let text = """
        usage: notifyutil [OPTION | COMMAND] ...

        Posts, watches and lists notifications. Commands run from left to right; an option holds for the commands after it.

        Commands:
          -p NAME           post NAME; the next command follows after a pause (-z)
          -w NAME           report every post of NAME, until interrupted
          -1 NAME           report one post of NAME (-N: that many), then end
          -g NAME           print the state of NAME
          -s NAME VALUE     set the state of NAME
          --list [PREFIX]   print who is registered, for all names or those that begin with PREFIX
          --monitor [NAME ...]
                            report all posts of both centers, or those of the names, and who posted
          --dump [PATH]     print notifyd's status, or write it to a file

        How -w and -N watch:
          -port, -file, -dispatch, -check, -plain, -signal [N]
                            as the function of notify(3); -port at first
          --distributed     the distributed center, for -p too;
                            then --object TEXT, --userinfo JSON for what is posted, --object for what is watched
          --darwin          the Darwin center again

        Options:
          -q                report nothing
          -v                report [TOKEN] SECONDS.MILLISECONDS NAME STATE KIND
          --json            print one JSON object a line
          --ready           write "ready" to standard error when the watching has begun
          -z MSEC           pause after a post that other commands follow (100)
          -M, -R            as on Darwin; what they turn on is always on here
          --session         the session bus (the default; the environment variable NOTIFY_CENTER_BUS names another)
          --system          the system bus
          --address TEXT    the bus at a D-Bus address, for instance unix:path=/run/my/bus
          -h, --help        this text

        Exit status: 0 done; 1 wrong command line; 69 the bus or notifyd cannot be reached; 77 not authorized;
        74 the output cannot be written; 70 anything else. See notifyutil(1).

        """
}
