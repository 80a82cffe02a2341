"""Long tasks. Each runs in a process of its own, so that it survives a reload and can really be stopped.

    runner    starts and stops the processes, from the app's side
    queue     which of them run at once: one for each device
    child     what runs in one of them
    reporter  what a task is given to say how far it is

A task is a module here with the name of its kind and one function,
`run(request: dict, secrets: dict, report: JobReporter) -> dict`. Request and result are plain JSON and are kept;
secrets (plain JSON too, so bytes as hex) reach the process through a pipe and are kept nowhere.
"""

KINDS = ("protect", "investigate", "sweep", "item", "dispute", "verify", "lab")
# Tasks that are handed the vault's data key; a report is verified without it.
OPENS_VAULT = ("protect", "investigate", "sweep", "item", "dispute", "lab")
# Tasks whose request may name an earlier job, under "resume", to go on with.
RESUMED = ("sweep", "lab")
