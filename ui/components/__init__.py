"""Parts that several pages share. What turns a value into HTML is a pure function; what makes Gradio components is not.

verdict_card    the answer, at arm's length          notices       errors and empty states
job_card        a running task, with Stop            path_picker   a folder browser on the server's side
lock_gate       who may look                         header        the strip at the top
case_file       a case, as a person reads it         run_view      one run of it, with its report's files
item_form       what was received                    dispute_form  what two claimants bring
commitment_box  a key's commitment and its dates     identity_box  who signs
checks          whether a report holds               dispute_card  who can show what
"""
