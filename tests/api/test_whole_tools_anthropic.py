"""Some of test_client_tools_anthropic.py with the default model, whose answers are words."""
import pytest

from conftest import TINY
from test_client_tools_anthropic import (  # noqa: F401
    client, test_a_call_is_forced, test_a_whole_loop, test_answers_are_parsed, test_the_runner_of_tools)

pytestmark = pytest.mark.skipif(TINY, reason="the others are played with the tiny model")
