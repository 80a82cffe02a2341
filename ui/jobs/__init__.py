"""Long tasks. Each runs in its own process, so that it survives a reload and can be stopped.

    runner    starts and stops the processes, on the app's side
    queue     limits the processes that run at once: one for each device
    child     the program of one such process
    reporter  reports the progress of a task

A task is a module here with the name of its kind and one function,
`run(request: dict, secrets: dict, report: JobReporter) -> dict`. Request and result are plain JSON and are stored;
secrets (plain JSON too, so bytes as hex) reach the process through a pipe and are not stored.
"""

KINDS = ("protect", "investigate", "sweep", "item", "dispute", "verify", "lab")
# Tasks that get the vault's data key; verifying a report does not need it.
OPENS_VAULT = ("protect", "investigate", "sweep", "item", "dispute", "lab")
# Tasks whose request may name an earlier job under "resume", which they continue.
RESUMED = ("sweep", "lab")
