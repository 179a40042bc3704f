"""Some of test_client_tools_openai.py with the default model, whose answers are words."""
import pytest

from conftest import TINY
from test_client_tools_openai import (  # noqa: F401
    client, test_a_loop_with_reasoning, test_a_whole_loop, test_answers_are_parsed, test_calls_are_parsed, test_functions_of_old, test_json_is_json,
    test_one_call_is_forced, test_responses_are_parsed, thinker, tools_server)

pytestmark = pytest.mark.skipif(TINY, reason="the others are played with the tiny model")
