/* The built-in templates, the most particular first. Each is one line of Jinja, so that no white space of the source
 * comes out. */
#include "chat/builtin.h"

#include <string.h>

#define EACH "{% for m in messages %}"
#define END  "{% endfor %}"
#define NO_TOOLS                                                                                                       \
    "{% if m.role == 'tool' %}{{ raise_exception('the template has no turns for what tools answer') }}{% endif %}"
#define GENERATION(text) "{% if add_generation_prompt %}{{ " text " }}{% endif %}"

/* System texts that stand in the next user's turn; without one they get a turn of their own.
 */
#define SYSTEM_INSIDE(trim, before, behind, open, close, answer_open, answer_close)                                    \
    "{% set ns = namespace(system='', waits=false) %}" EACH NO_TOOLS "{% set text = (m.content or '')" trim " %}"      \
    "{% if m.role == 'system' %}{% set ns.system = ns.system + '" before "' + text + '" behind "' %}"                  \
    "{% set ns.waits = true %}"                                                                                        \
    "{% elif m.role == 'user' %}{{ '" open "' + ns.system + text + '" close "' }}"                                     \
    "{% set ns.system = '' %}{% set ns.waits = false %}"                                                               \
    "{% else %}{% if ns.waits %}{{ '" open "' + ns.system + '" close "' }}{% endif %}"                                 \
    "{% set ns.system = '' %}{% set ns.waits = false %}"                                                               \
    "{{ '" answer_open "' + text + '" answer_close "' }}{% endif %}" END "{% if ns.waits %}{{ '" open                  \
    "' + ns.system + '" close "' }}{% endif %}"

#define BAR "\xef\xbd\x9c" /* U+FF5C */
#define GAP "\xe2\x96\x81" /* U+2581 */

static const struct chat_builtin builtins[] = {
    {.name = "gemma4",
     .needs = {"<|turn>", "<turn|>"},
     .text =
         "{{ bos_token }}" EACH NO_TOOLS "{{ '<|turn>' + ('model' if m.role == 'assistant' else m.role) + '\\n' }}"
         "{% if loop.last and continue_final_message %}{{ '<|channel>thought\\n<channel|>' }}{% endif %}"
         "{{ (m.content | trim) + '<turn|>\\n' }}" END GENERATION("'<|turn>model\\n<|channel>thought\\n<channel|>'")},
    {.name = "gemma",
     .needs = {"<start_of_turn>", "<end_of_turn>"},
     .text = "{{ bos_token }}" SYSTEM_INSIDE(" | trim", "", "\\n\\n", "<start_of_turn>user\\n", "<end_of_turn>\\n",
                                             "<start_of_turn>model\\n", "<end_of_turn>\\n")
         GENERATION("'<start_of_turn>model\\n'")},
    {.name = "llama3",
     .needs = {"<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"},
     .text = "{{ bos_token }}" EACH
             "{{ '<|start_header_id|>' + ('ipython' if m.role == 'tool' else m.role) + '<|end_header_id|>\\n\\n'"
             " + (m.content | trim) + '<|eot_id|>' }}" END GENERATION(
                 "'<|start_header_id|>assistant<|end_header_id|>\\n\\n'")},
    {.name = "phi4",
     .needs = {"<|im_start|>", "<|im_sep|>", "<|im_end|>"},
     .text = EACH NO_TOOLS "{{ '<|im_start|>' + m.role + '<|im_sep|>' + m.content + '<|im_end|>' }}" END GENERATION(
         "'<|im_start|>assistant<|im_sep|>'")},
    {.name = "chatml",
     .needs = {"<|im_start|>", "<|im_end|>"},
     .text = EACH "{{ '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}" END GENERATION(
         "'<|im_start|>assistant\\n'")},
    {.name = "harmony",
     .needs = {"<|start|>", "<|message|>", "<|end|>"},
     .text = EACH NO_TOOLS
     "{% if m.role in ['system', 'developer'] %}"
     "{{ '<|start|>developer<|message|># Instructions\\n\\n' + m.content + '\\n\\n<|end|>' }}"
     "{% elif m.role == 'user' %}{{ '<|start|>user<|message|>' + m.content + '<|end|>' }}"
     "{% else %}{{ '<|start|>assistant<|channel|>final<|message|>' + m.content + '<|end|>' }}{% endif %}" END
         GENERATION("'<|start|>assistant'")},
    {.name = "phi3",
     .needs = {"<|user|>", "<|assistant|>", "<|end|>"},
     .text =
         EACH NO_TOOLS "{% if m.role == 'system' %}{{ '<|system|>\\n' }}{% elif m.role == 'user' %}{{ '<|user|>\\n' }}"
                       "{% else %}{{ '<|assistant|>\\n' }}{% endif %}{{ m.content + '<|end|>\\n' }}" END GENERATION(
                           "'<|assistant|>\\n'")},
    {.name = "glm4",
     .needs = {"[gMASK]", "<sop>", "<|user|>"},
     .text = "{{ '[gMASK]<sop>' }}" EACH
             "{% if m.role == 'system' %}{{ '<|system|>\\n' }}{% elif m.role == 'user' %}{{ '<|user|>\\n' }}"
             "{% elif m.role == 'tool' %}{{ '<|observation|>\\n' }}{% else %}{{ '<|assistant|>\\n' }}{% endif %}"
             "{{ m.content }}" END GENERATION("'<|assistant|>\\n'")},
    {.name = "command-r",
     .needs = {"<|START_OF_TURN_TOKEN|>", "<|USER_TOKEN|>", "<|CHATBOT_TOKEN|>"},
     .text =
         "{{ bos_token }}" EACH NO_TOOLS "{% if m.role == 'system' %}{{ '<|START_OF_TURN_TOKEN|><|SYSTEM_TOKEN|>' }}"
         "{% elif m.role == 'user' %}{{ '<|START_OF_TURN_TOKEN|><|USER_TOKEN|>' }}"
         "{% else %}{{ '<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>' }}{% endif %}"
         "{{ (m.content | trim) + '<|END_OF_TURN_TOKEN|>' }}" END GENERATION(
             "'<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>'")},
    {.name = "deepseek",
     .needs = {"<" BAR "User" BAR ">", "<" BAR "Assistant" BAR ">", "<" BAR "end" GAP "of" GAP "sentence" BAR ">"},
     .text = "{{ bos_token }}" EACH NO_TOOLS "{% if m.role == 'user' %}{{ '<" BAR "User" BAR ">' + m.content }}"
             "{% elif m.role == 'assistant' %}{{ '<" BAR "Assistant" BAR ">' + m.content + '<" BAR "end" GAP "of" GAP
             "sentence" BAR ">' }}{% else %}{{ m.content }}{% endif %}" END GENERATION("'<" BAR "Assistant" BAR ">'")},
    {.name = "mistral-v7",
     .needs = {"[SYSTEM_PROMPT]", "[INST]", "[/INST]"},
     .by_score = 1,
     .text = "{{ bos_token }}" EACH NO_TOOLS
             "{% if m.role == 'system' %}{{ '[SYSTEM_PROMPT] ' + m.content + '[/SYSTEM_PROMPT]' }}"
             "{% elif m.role == 'user' %}{{ '[INST] ' + m.content + '[/INST]' }}"
             "{% else %}{{ ' ' + m.content + '</s>' }}{% endif %}" END},
    {.name = "mistral-v7-tekken",
     .needs = {"[SYSTEM_PROMPT]", "[INST]", "[/INST]"},
     .text = "{{ bos_token }}" EACH NO_TOOLS
             "{% if m.role == 'system' %}{{ '[SYSTEM_PROMPT]' + m.content + '[/SYSTEM_PROMPT]' }}"
             "{% elif m.role == 'user' %}{{ '[INST]' + m.content + '[/INST]' }}"
             "{% else %}{{ m.content + '</s>' }}{% endif %}" END},
    {.name = "mistral-v3",
     .needs = {"[INST]", "[/INST]"},
     .by_score = 1,
     .text = "{{ bos_token }}" SYSTEM_INSIDE("", "", "\\n\\n", "[INST] ", "[/INST]", " ", "</s>")},
    {.name = "mistral-v3-tekken",
     .needs = {"[INST]", "[/INST]"},
     .text = "{{ bos_token }}" SYSTEM_INSIDE("", "", "\\n\\n", "[INST]", "[/INST]", "", "</s>")},
    {.name = "llama2",
     .text = "{% if messages[0].role == 'assistant' %}{{ bos_token }}{% endif %}" SYSTEM_INSIDE(
         " | trim", "<<SYS>>\\n", "\\n<</SYS>>\\n\\n", "' + bos_token + '[INST] ", " [/INST]", " ", " </s>")},
    {.name = "mistral-v1",
     .text = "{{ bos_token }}" SYSTEM_INSIDE("", "", "\\n\\n", "[INST] ", " [/INST]", " ", "</s>")},
    {.name = "plain", .text = EACH "{{ m.role + ': ' + m.content + '\\n' }}" END GENERATION("'assistant:'")},
};

enum { BUILTINS = sizeof(builtins) / sizeof(builtins[0]) };

static int fits(const struct tokenizer *t, const struct chat_builtin *b) {
    if (!b->needs[0] || (b->by_score && !tokenizer_merges_by_score(t))) return 0;
    for (int i = 0; i < 3 && b->needs[i]; i++) {
        int32_t id = tokenizer_find(t, b->needs[i], strlen(b->needs[i]));
        if (id < 0 || !tokenizer_is_special(t, id)) return 0;
    }
    return 1;
}

const struct chat_builtin *chat_builtin_choose(const struct tokenizer *t) {
    for (size_t i = 0; i < BUILTINS; i++)
        if (fits(t, &builtins[i])) return &builtins[i];
    return &builtins[BUILTINS - 1];
}

const struct chat_builtin *chat_builtin_named(const char *name, size_t len) {
    for (size_t i = 0; i < BUILTINS; i++)
        if (strlen(builtins[i].name) == len && memcmp(builtins[i].name, name, len) == 0) return &builtins[i];
    return NULL;
}
