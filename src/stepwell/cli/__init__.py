"""The shell of the command line; each command stands with what it is about, in `stepwell.apps` or `stepwell.lab`.

===============  ======================================================================================================
`start`          how `stepwell COMMAND` begins, before anything large is imported
`group`          the table of commands, imported when they are called
`output`         what every command has in common: --json, --quiet, --verbose, where words go
`inputs`         what commands read from their command lines, checked
`console`        tables for people; `progress_bar`: bars that move
`interrupts`     how Ctrl-C ends a command
`info`           `stepwell info`; `warming`: kernels compiled before they are needed
===============  ======================================================================================================
"""
