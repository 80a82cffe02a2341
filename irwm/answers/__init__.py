"""Tracing and detection from ordinary answers: text, or text with the log-probability of each generated token.

`irwm.checkpoint.served_model` recovers an output head from complete vectors. This needs much less: the fingerprint of a
copy is a sum of secret signs, and it shows in the gradient of the likelihood of what the copy generated.

    answers     what is known of the answers
    token_names  which token a server means by a text
    responses   from a server's responses to answers
    recorded_responses  a file of them
    weights     the weights of tokens in the score
    gradient    the gradient of the likelihood, as rows that signs are summed over
    fits        halves of the answers, for fits of the original
    reading     from answers to the evidence of each key
    result      the result of a detection
    tracing     names and verdicts
    random_prompts  prompts drawn from a seed
    prompts     the prompts whose answers say most
    suspect     a file of responses as a suspect of a report

This is the one package besides the attacks that runs a model, and it runs only the original.
"""

from irwm.answers.answers import Answers
from irwm.answers.prompts import ChosenPrompts, choose_prompts
from irwm.answers.recorded_responses import read_responses
from irwm.answers.responses import answers_from_responses
from irwm.answers.result import AnswersFinding
from irwm.answers.tracing import detect_answers, trace_answers
from irwm.inference.fitting import Fits

__all__ = [
    "Answers",
    "AnswersFinding",
    "ChosenPrompts",
    "Fits",
    "answers_from_responses",
    "choose_prompts",
    "detect_answers",
    "read_responses",
    "trace_answers",
]
