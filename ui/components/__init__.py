"""Parts that several pages share. Functions that return HTML are pure; functions that make Gradio components are not.

verdict_card    the verdict, in large type           notices       errors and empty states
job_card        a running task, with Stop            path_picker   a browser for folders on the server
lock_gate       asks for the passphrase              header        the strip at the top
case_file       a case as HTML                       run_view      one run of it, with its report's files
item_form       adds a received item                 dispute_form  the claims of both claimants
commitment_box  a key's commitment and its dates     identity_box  the signing identity
checks          the checks of a report               dispute_card  the outcome of a dispute
markup          facts, tables and words of all these secret_field  a field for a passphrase
"""
