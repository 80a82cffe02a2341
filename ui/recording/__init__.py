"""Records a served model's answers: `python app.py collect` (docs/answers.md).

    plan       the requests of a recording of complete log-probabilities, and how many it takes; sends nothing
    prompts    the texts of the prompts, drawn from a seed
    dialects   the form of a request, and of the log-probabilities in the answer
    common_scale  puts chosen tokens from several answers on one scale
    sending    one request: rate, retries, time limits, the token for the API
    journal    the file that grows answer by answer, and survives a kill
    recorder   the whole recording
    generation  the same for generated text: plan and recording

No request is sent without a permission (`sending.Permission`).
"""
