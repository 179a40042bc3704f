/* Answers and their parts, for test_chat_reader.c and as seeds for its fuzzer. */
/* plain text, and what only looks like markers */
{"hermes", "", "", "Hello  world\n\n", "T(Hello  world\n\n)"},
{"hermes", "", "", "  a < b <tool <tool_cal", "T(  a < b <tool <tool_cal)"},
{"hermes", "", "", "use <tool_call> to call", "T(use <tool_call> to call)"},
{"", "", "", "<tool_call>{\"name\": \"stop\", \"arguments\": {}}</tool_call>", "C(stop)A({})E"},
/* hermes */
{"hermes", "", "", "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Paris\"}}\n</tool_call>",
 "C(get_weather)A({\"city\": \"Paris\"})E"},
{"hermes", "", "",
 "Sure.\n\n<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"P\\\"}\", \"n\": [1, {\"a\": 2}]}}\n"
 "</tool_call>\n<tool_call>\n{\"name\": \"stop\", \"arguments\": {}}\n</tool_call>\nDone.",
 "T(Sure.)C(get_weather)A({\"city\": \"P\\\"}\", \"n\": [1, {\"a\": 2}]})EC(stop)A({})ET(Done.)"},
{"hermes", "", "", "<tool_call>{\"arguments\":{\"city\":\"x\"},\"name\":\"get_weather\",\"id\":7}</tool_call>",
 "C(get_weather)A({\"city\":\"x\"})E"},
{"hermes", "", "", "<tool_call>{\"name\": \"stop\"}</tool_call>", "C(stop)A({})E"},
{"hermes", "", "", "<tool_call>{\"name\":\"get_weather\",\"arguments\":\"{\\\"city\\\": \\\"x\\\"}\"}</tool_call>",
 "C(get_weather)A({\"city\": \"x\"})E"},
{"hermes", "", "", "<tool_call>{\"name\": \"unknown\", \"arguments\": {}}</tool_call>!",
 "T(<tool_call>{\"name\": \"unknown\", \"arguments\": {}}</tool_call>!)"},
{"hermes", "", "", "<tool_call>{\"name\": \"stop\", \"arguments\": {\"a\": oops}}</tool_call>",
 "C(stop)A({\"a\": )T(oops}}</tool_call>)"},
{"hermes", "", "", "<tool_call>{\"name\": \"stop\", \"arguments\": {\"a\": 1}</tool_call>", "C(stop)A({\"a\": 1})E"},
{"hermes", "", "", "<tool_call>{\"name\": \"stop\", \"arguments\": {\"a\": \"b", "C(stop)A({\"a\": \"b)"},
{"hermes", "", "", "<tool_call>{\"name\": \"stop\", \"arguments\": {\"a\": \"b\nc\"}}</tool_call>",
 "C(stop)A({\"a\": \"b\\nc\"})E"},
{"hermes", "", "", "<tool_call>{\"name\": \"st", "T(<tool_call>{\"name\": \"st)"},
{"hermes", "", "", "<tool_call><tool_call>{\"name\":\"stop\",\"arguments\":{}}</tool_call>",
 "T(<tool_call>)C(stop)A({})E"},
/* reasoning */
{"hermes", "think", "", "<think>\nHm, let me see.\n</think>\n\nYes.", "R(Hm, let me see.)T(Yes.)"},
{"hermes", "think", "<think>\n", "Hm.\n</think>\n\nYes.\n", "R(Hm.)T(Yes.\n)"},
{"hermes", "think", "<think>\n\n</think>\n\n", "Yes </think>", "T(Yes </think>)"},
{"hermes", "think", "", "</think>Yes", "T(Yes)"},
{"hermes", "think", "", "Yes <think>no</think>", "T(Yes <think>no</think>)"},
{"hermes", "think", "", "<think>cut </thi", "R(cut </thi)"},
{"hermes", "think", "<think>", "a <tool_call> b</think><tool_call>{\"name\":\"stop\",\"arguments\":{}}</tool_call>",
 "R(a <tool_call> b)C(stop)A({})E"},
{"seed-oss", "seed-think", "", "<seed:think>R\xc3\xa4</seed:think>T", "R(R\xc3\xa4)T(T)"},
{"command-r7b", "command-thinking", "<|START_THINKING|>", "plan<|END_THINKING|><|START_RESPONSE|>Hi<|END_RESPONSE|>",
 "R(plan)T(Hi)"},
{"mistral-v13", "mistral-think", "", "[THINK]x[/THINK]y", "R(x)T(y)"},
{"gemma-4", "gemma-4-thought", "", "<|channel>thought\nx\n<channel|>y", "R(x)T(y)"},
{"granite-3", "granite-3-response", "", "<think>x</think>\n<response>y</response>", "R(x)T(y)"},
{"apriel", "apriel-steps", "Here are my reasoning steps:\n", "x\n[BEGIN FINAL RESPONSE]\ny", "R(x)T(y)"},
/* parameters between tags */
{"qwen3-coder", "", "",
 "Let me.\n<tool_call>\n<function=get_weather>\n<parameter=city>\nNew\n\"York\"\n</parameter>\n<parameter=days>\n3\n"
 "</parameter>\n<parameter=exact>\nTrue\n</parameter>\n<parameter=more>\n{\"a\": [1]}\n</parameter>\n</function>\n"
 "</tool_call>",
 "T(Let me.)C(get_weather)A({\"city\": \"New\\n\\\"York\\\"\", \"days\": 3, \"exact\": true, \"more\": {\"a\": [1]}})E"},
{"qwen3-coder", "", "", "<function=get_weather>\n<parameter=city>3</parameter>\n</function>",
 "C(get_weather)A({\"city\": \"3\"})E"},
{"qwen3-coder", "", "", "<tool_call>\n<function=stop>\n</function>\n</tool_call>", "C(stop)A({})E"},
{"qwen3-coder", "", "",
 "<tool_call><function=get_weather><parameter=city>\n\n</parameter><parameter=list>['a', {'b': None}]</parameter>"
 "<parameter=days>many</parameter></function></tool_call>",
 "C(get_weather)A({\"city\": \"\", \"list\": [\"a\", {\"b\": null}], \"days\": \"many\"})E"},
{"qwen3-coder", "", "",
 "<tool_call><function=get_weather><parameter=at>null</parameter><parameter=unit>C</parameter></function></tool_call>",
 "C(get_weather)A({\"at\": null, \"unit\": \"C\"})E"},
{"qwen3-coder", "", "", "<tool_call>\n<function=get_weather>\n<parameter=city>\nPa", "C(get_weather)A({\"city\": \"Pa)"},
{"qwen3-coder", "", "", "<tool_call>\n<function=get_weather>\nwhat</function>", "C(get_weather)A({)T(what</function>)"},
{"qwen3-coder", "", "", "<tool_call>\n<function=other>\n</function>", "T(<tool_call>\n<function=other>\n</function>)"},
{"seed-oss", "", "",
 "<seed:tool_call>\n<function=get_weather>\n<parameter=city>a</b></parameter>\n</function>\n</seed:tool_call>",
 "C(get_weather)A({\"city\": \"a</b>\"})E"},
{"glm", "", "",
 "<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>Rome</arg_value>\n<arg_key>days</arg_key>\n"
 "<arg_value>2</arg_value>\n</tool_call>\n<tool_call>stop\n</tool_call>",
 "C(get_weather)A({\"city\": \"Rome\", \"days\": 2})EC(stop)A({})E"},
{"glm", "", "", "<tool_call>get_weather<arg_key>city</arg_key><arg_value>Rome</arg_value></tool_call>",
 "C(get_weather)A({\"city\": \"Rome\"})E"},
{"hunyuan", "", "",
 "<tool_calls:opensource>\n<tool_call:opensource>get_weather<tool_sep:opensource>\n<arg_key:opensource>days"
 "</arg_key:opensource>\n<arg_value:opensource>4</arg_value:opensource>\n</tool_call:opensource>\n"
 "</tool_calls:opensource>",
 "C(get_weather)A({\"days\": 4})E"},
{"minimax", "", "",
 "<minimax:tool_call>\n<invoke name=\"get_weather\">\n<parameter name=\"city\">Oslo</parameter>\n</invoke>\n"
 "<invoke name=\"stop\">\n</invoke>\n</minimax:tool_call>",
 "C(get_weather)A({\"city\": \"Oslo\"})EC(stop)A({})E"},
{"minicpm", "", "", "<function name=\"get_weather\"><param name=\"city\">a</param></function>",
 "C(get_weather)A({\"city\": \"a\"})E"},
{"muse", "", "",
 "<atem:function_calls>\n<atem:invoke name=\"get_weather\">\n<atem:parameter name=\"city\">a</atem:parameter>\n"
 "</atem:invoke>\n</atem:function_calls>",
 "C(get_weather)A({\"city\": \"a\"})E"},
{"deepseek-v3.2", "", "",
 "Hm\n\n<｜DSML｜function_calls>\n<｜DSML｜invoke name=\"get_weather\">\n<｜DSML｜parameter name=\"city\" string=\"true\">5"
 "</｜DSML｜parameter>\n<｜DSML｜parameter name=\"days\" string=\"false\">5</｜DSML｜parameter>\n</｜DSML｜invoke>\n"
 "</｜DSML｜function_calls>",
 "T(Hm)C(get_weather)A({\"city\": \"5\", \"days\": 5})E"},
{"kimi-k3", "kimi-k3-think", "<|open|>think<|sep|>",
 "x<|close|>think<|sep|><|open|>response<|sep|>y<|close|>response<|sep|><|open|>tools<|sep|><|open|>call "
 "tool=\"get_weather\" index=\"1\"<|sep|><|open|>argument key=\"city\" type=\"string\"<|sep|>7<|close|>argument<|sep|>"
 "<|open|>argument key=\"days\" type=\"number\"<|sep|>7<|close|>argument<|sep|><|close|>call<|sep|>"
 "<|close|>tools<|sep|><|close|>message<|sep|>",
 "R(x)T(y)C(get_weather)A({\"city\": \"7\", \"days\": 7})E"},
/* names before JSON */
{"kimi-k2", "think", "",
 "<think>x</think>y<|tool_calls_section_begin|><|tool_call_begin|>functions.get_weather:0<|tool_call_argument_begin|>"
 "{\"city\": \"Rom\"}<|tool_call_end|><|tool_call_begin|>functions.stop:1<|tool_call_argument_begin|>{}<|tool_call_end|>"
 "<|tool_calls_section_end|>",
 "R(x)T(y)C(get_weather)A({\"city\": \"Rom\"})EC(stop)A({})E"},
{"deepseek-r1", "think", "<think>\n",
 "x</think>\n\n<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>get_weather\n```json\n{\"city\": \"Rom\"}\n"
 "```<｜tool▁call▁end｜>\n<｜tool▁call▁begin｜>function<｜tool▁sep｜>stop\n```json\n{}\n```<｜tool▁call▁end｜>"
 "<｜tool▁calls▁end｜>",
 "R(x)C(get_weather)A({\"city\": \"Rom\"})EC(stop)A({})E"},
{"deepseek-v3.1", "think", "",
 "y<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>get_weather<｜tool▁sep｜>{\"city\": \"Rom\"}<｜tool▁call▁end｜>"
 "<｜tool▁call▁begin｜>stop<｜tool▁sep｜>{}<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
 "T(y)C(get_weather)A({\"city\": \"Rom\"})EC(stop)A({})E"},
{"harmony", "harmony-analysis", "<|start|>assistant",
 "<|channel|>analysis<|message|>think<|end|><|start|>assistant<|channel|>commentary to=functions.get_weather "
 "<|constrain|>json<|message|>{\"city\":\"Rom\"}<|call|>",
 "R(think)C(get_weather)A({\"city\":\"Rom\"})E"},
{"harmony", "harmony-analysis", "<|start|>assistant",
 " to=functions.get_weather<|channel|>commentary json<|message|>{\"city\":\"Rom\"}",
 "C(get_weather)A({\"city\":\"Rom\"})E"},
{"harmony", "harmony-analysis", "<|start|>assistant",
 "<|channel|>analysis<|message|>a<|end|><|start|>assistant<|channel|>commentary<|message|>b<|end|><|start|>assistant"
 "<|channel|>final<|message|>c<|return|>",
 "R(a)T(bc)"},
{"mistral-v13", "", "", "Hi[TOOL_CALLS]get_weather[ARGS]{\"city\": \"Rom\"}[TOOL_CALLS]stop[ARGS]{}",
 "T(Hi)C(get_weather)A({\"city\": \"Rom\"})EC(stop)A({})E"},
{"mistral-v11", "", "", "[TOOL_CALLS]get_weather[CALL_ID]abcdefg12[ARGS]{\"city\": \"Rom\"}",
 "C(get_weather)A({\"city\": \"Rom\"})E"},
{"functionary-v3.1", "", "", "a<function=get_weather>{\"city\": \"Rom\"}</function><function=stop>{}</function>",
 "T(a)C(get_weather)A({\"city\": \"Rom\"})EC(stop)A({})E"},
{"functionary-v3.2", "", ">>>", "all\nHi there\n>>>get_weather\n{\"city\": \"Rom\"}>>>stop\n{}",
 "T(Hi there)C(get_weather)A({\"city\": \"Rom\"})EC(stop)A({})E"},
{"functionary-v3.2", "", ">>>", "get_weather\n{\"city\": \"Rom\"}", "C(get_weather)A({\"city\": \"Rom\"})E"},
{"apertus", "", "", "a<|tools_prefix|>[{\"get_weather\": {\"city\": \"Rom\"}}, {\"stop\": {}}]<|tools_suffix|>",
 "T(a)C(get_weather)A({\"city\": \"Rom\"})EC(stop)A({})E"},
{"apertus", "", "", "{\"get_weather\": {\"city\": \"Rom\"}}", "T({\"get_weather\": {\"city\": \"Rom\"}})"},
{"solar", "", "",
 "<|tool_calls|><|tool_call:begin|>abc<|tool_call:name|>get_weather<|tool_call:args|>{\"city\": \"Rom\"}"
 "<|tool_call:end|><|calls|>",
 "C(get_weather)A({\"city\": \"Rom\"})E"},
/* objects in lists and alone */
{"mistral", "", "", "[TOOL_CALLS][{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Rom\"}, \"id\": \"abcdefg12\"}, "
 "{\"name\": \"stop\", \"arguments\": {}, \"id\": \"abcdefg13\"}]",
 "C(get_weather)A({\"city\": \"Rom\"})EC(stop)A({})E"},
{"nemotron-v2", "think", "<think>\n", "x</think>\n<TOOLCALL>[{\"name\": \"stop\", \"arguments\": {}}]</TOOLCALL>",
 "R(x)C(stop)A({})E"},
{"apriel", "", "", "<tool_calls>[{\"name\": \"stop\", \"arguments\": {}}]</tool_calls>z", "C(stop)A({})ET(z)"},
{"minimax-m1", "", "", "<tool_calls>\n{\"name\": \"stop\", \"arguments\": {}}\n{\"name\": \"stop\", \"arguments\": {}}\n"
 "</tool_calls>",
 "C(stop)A({})EC(stop)A({})E"},
{"command-r7b", "command-thinking", "<|START_THINKING|>",
 "x<|END_THINKING|><|START_ACTION|>[\n    {\"tool_call_id\": \"0\", \"tool_name\": \"get_weather\", \"parameters\": "
 "{\"city\": \"Rom\"}},\n    {\"tool_call_id\": \"1\", \"tool_name\": \"stop\", \"parameters\": {}}\n]<|END_ACTION|>",
 "R(x)C(get_weather)A({\"city\": \"Rom\"})EC(stop)A({})E"},
{"command-r-plus", "", "", "Action:\n```json\n[\n    {\n        \"tool_name\": \"get_weather\",\n        \"parameters\": "
 "{\n            \"city\": \"Rom\"\n        }\n    }\n]```",
 "C(get_weather)A({\n            \"city\": \"Rom\"\n        })E"},
{"granite-3", "", "", "<|tool_call|>[{\"name\": \"stop\", \"arguments\": {}}]", "C(stop)A({})E"},
{"granite-3", "", "", "<|tool_call|> [{\"name\": \"stop\", \"arguments\": {}}]", "C(stop)A({})E"},
{"gigachat-3.1", "", "", "a<|function_call|>{\"name\": \"stop\", \"arguments\": {}}", "T(a)C(stop)A({})E"},
{"gigachat-3", "", "", "<|message_sep|>\n\nfunction call<|role_sep|>\n{\"name\": \"stop\", \"arguments\": {}}",
 "C(stop)A({})E"},
{"firefunction", "", "", " functools[{\"name\": \"stop\", \"arguments\": {}}]", "C(stop)A({})E"},
{"llama-3", "", "", "{\"name\": \"get_weather\", \"parameters\": {\"city\": \"Rom\"}}",
 "C(get_weather)A({\"city\": \"Rom\"})E"},
{"llama-3", "", "", "\n{\"type\": \"function\", \"parameters\": {\"city\": \"Rom\"}, \"name\": \"get_weather\"}",
 "C(get_weather)A({\"city\": \"Rom\"})E"},
{"llama-3", "", "", "<|python_tag|>{\"name\": \"stop\", \"parameters\": {}}; {\"name\": \"stop\", \"parameters\": {}}",
 "C(stop)A({})EC(stop)A({})E"},
{"llama-3", "", "", "See {\"name\": \"stop\", \"parameters\": {}}", "T(See {\"name\": \"stop\", \"parameters\": {}})"},
{"llama-3", "", "", "{\"answer\": 42}", "T({\"answer\": 42})"},
/* nearly JSON */
{"lfm2", "", "",
 "Let me.<|tool_call_start|>[get_weather(city='L\\'A \"x\"', days=4, exact=True, list=[1, {'a': None}]), stop()]"
 "<|tool_call_end|>Done",
 "T(Let me.)C(get_weather)A({\"city\": \"L'A \\\"x\\\"\", \"days\": 4, \"exact\": true, \"list\": [1, {\"a\": null}]})E"
 "C(stop)A({})ET(Done)"},
{"lfm2", "", "", "<|tool_call_start|>[get_weather(city=\"a\\n\\u00e4\", exact=false)]<|tool_call_end|>",
 "C(get_weather)A({\"city\": \"a\\n\xc3\xa4\", \"exact\": false})E"},
{"lfm2", "", "", "<|tool_call_start|>[get_weather(3)]<|tool_call_end|>", "C(get_weather)A({)T(3)]<|tool_call_end|>)"},
{"gemma-4", "gemma-4-thought", "",
 "<|channel>thought\nx<channel|><|tool_call>call:get_weather{city:<|\"|>L\"A<|\"|>,days:4,list:[1,{a:<|\"|>b<|\"|>}],"
 "exact:true}<tool_call|><|tool_call>call:stop{}<tool_call|>",
 "R(x)C(get_weather)A({\"city\":\"L\\\"A\",\"days\":4,\"list\":[1,{\"a\":\"b\"}],\"exact\":true})EC(stop)A({})E"},
