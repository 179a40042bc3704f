/* The published pre-tokeniser patterns, by the names that model files give them. Tables only.
 *
 * The patterns are those of the models' own tokenizer files. \s is spelled out: the published engines mean Unicode's
 * White_Space by it, PCRE2 adds U+180E. GPT-2's last alternative "\s+" is left out: only single blanks are left for it,
 * and what no pattern matches is a piece too. */
#include <string.h>

#include "text/pretok.h"

#define SPACE        "\\x09-\\x0d\\x20\\x85\\xa0\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}\\x{205f}\\x{3000}"
#define CONTRACTIONS "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define BLANKS       "[" SPACE "]+(?![^" SPACE "])|[" SPACE "]+"
#define LINES        "[" SPACE "]*[\\r\\n]+"
#define UPPER        "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define LOWER        "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
#define ASCII_MARKS  "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~]"

/* Words, digits as `numbers` says, marks with the line ends behind them, line ends, blanks. */
#define WORDS(numbers)                                                                                                 \
    "[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|" numbers "| ?[^" SPACE "\\p{L}\\p{N}]+[\\r\\n]*|" LINES "|" BLANKS
/* Words cut where capitals begin. */
#define CASED_WORDS(contractions, numbers)                                                                             \
    "[^\\r\\n\\p{L}\\p{N}]?" UPPER "*" LOWER "+" contractions "|[^\\r\\n\\p{L}\\p{N}]?" UPPER "+" LOWER                \
    "*" contractions "|" numbers "| ?[^" SPACE "\\p{L}\\p{N}]+[\\r\\n/]*|" LINES "|" BLANKS

#define GPT2 "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^" SPACE "\\p{L}\\p{N}]+|[" SPACE "]+(?![^" SPACE "])"
#define DEEPSEEK_WORDS                                                                                                 \
    ASCII_MARKS "[A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\\r\\n]*|" LINES "|" BLANKS
#define CJK        "[\\x{4e00}-\\x{9fa5}\\x{3040}-\\x{309f}\\x{30a0}-\\x{30ff}]+"
#define HAN_KOREAN "[\\x{4e00}-\\x{9fa5}\\x{800}-\\x{4e00}\\x{ac00}-\\x{d7ff}]+"
#define DEEPSEEK_LETTERS                                                                                               \
    "A-Za-z\\x{b5}\\x{c0}-\\x{d6}\\x{d8}-\\x{f6}\\x{f8}-\\x{1ba}\\x{1bc}-\\x{1bf}\\x{1c4}-\\x{293}"                    \
    "\\x{295}-\\x{2af}\\x{370}-\\x{373}\\x{376}\\x{377}\\x{37b}-\\x{37d}\\x{37f}\\x{386}\\x{388}-\\x{38a}"             \
    "\\x{38c}\\x{38e}-\\x{3a1}\\x{3a3}-\\x{3f5}\\x{3f7}-\\x{481}\\x{48a}-\\x{52f}\\x{531}-\\x{556}"                    \
    "\\x{10a0}-\\x{10c5}\\x{13a0}-\\x{13f5}\\x{13f8}-\\x{13fd}\\x{1c90}-\\x{1cba}\\x{1cbd}-\\x{1cbf}"                  \
    "\\x{1d00}-\\x{1d2b}\\x{1d6b}-\\x{1d77}\\x{1d79}-\\x{1d9a}\\x{1e00}-\\x{1f15}\\x{1f18}-\\x{1f1d}"                  \
    "\\x{1f20}-\\x{1f45}\\x{1f48}-\\x{1f4d}\\x{1f50}-\\x{1f57}\\x{1f59}\\x{1f5b}\\x{1f5d}\\x{1f5f}-"                   \
    "\\x{1f7d}\\x{1f80}-\\x{1fb4}\\x{1fb6}-\\x{1fbc}\\x{1fbe}\\x{1fc2}-\\x{1fc4}\\x{1fc6}-\\x{1fcc}"                   \
    "\\x{1fd0}-\\x{1fd3}\\x{1fd6}-\\x{1fdb}\\x{1fe0}-\\x{1fec}\\x{1ff2}-\\x{1ff4}\\x{1ff6}-\\x{1ffc}"                  \
    "\\x{2102}\\x{2107}\\x{210a}-\\x{2113}\\x{2115}\\x{2119}-\\x{211d}\\x{2124}\\x{2126}\\x{2128}"                     \
    "\\x{212a}-\\x{212d}\\x{212f}-\\x{2134}\\x{2139}\\x{213c}-\\x{213f}\\x{2145}-\\x{2149}\\x{214e}"                   \
    "\\x{2183}\\x{2184}\\x{2c00}-\\x{2c7b}\\x{2c7e}-\\x{2ce4}\\x{2ceb}-\\x{2cee}\\x{2cf2}\\x{2cf3}"                    \
    "\\x{a640}-\\x{a66d}\\x{a680}-\\x{a69b}\\x{a722}-\\x{a76f}\\x{a771}-\\x{a787}\\x{a78b}-\\x{a78e}"                  \
    "\\x{ab70}-\\x{abbf}\\x{fb00}-\\x{fb06}\\x{fb13}-\\x{fb17}\\x{ff21}-\\x{ff3a}\\x{ff41}-\\x{ff5a}"                  \
    "\\x{10400}-\\x{1044f}\\x{104b0}-\\x{104d3}\\x{104d8}-\\x{104fb}\\x{10c80}-\\x{10cb2}\\x{10cc0}-"                  \
    "\\x{10cf2}\\x{118a0}-\\x{118df}\\x{1e900}-\\x{1e943}"

static const char *const stages_default[] = {"[\\p{P}$+<=>^~|]+", GPT2, "\\p{N}+", "[0-9][0-9][0-9]", NULL};
static const char *const stages_gpt2[] = {GPT2, NULL};
static const char *const stages_digits_gpt2[] = {"\\p{N}", GPT2, NULL};
static const char *const stages_falcon[] = {"[\\p{P}$+<=>^~|`]+", GPT2, "[0-9][0-9][0-9]", NULL};
static const char *const stages_llama3[] = {CONTRACTIONS "|" WORDS("\\p{N}{1,3}"), NULL};
static const char *const stages_qwen2[] = {CONTRACTIONS "|" WORDS("\\p{N}"), NULL};
static const char *const stages_qwen35[] = {CONTRACTIONS "|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}| ?[^" SPACE
                                                         "\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|" LINES "|" BLANKS,
                                            NULL};
static const char *const stages_minicpm5[] = {"\\p{N}{1,3}", CONTRACTIONS "|" WORDS("\\p{N}+"), NULL};
static const char *const stages_laguna[] = {"[^\\n]+|\\n+", CONTRACTIONS "|" WORDS("\\p{N}"), NULL};
static const char *const stages_gpt4o[] = {CASED_WORDS(CONTRACTIONS "?", "\\p{N}{1,3}"), NULL};
static const char *const stages_tekken[] = {CASED_WORDS("", "\\p{N}"), NULL};
static const char *const stages_seed[] = {
    CONTRACTIONS "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^" SPACE "\\p{L}\\p{N}\\r\\n]+|" LINES "|" BLANKS, NULL};
static const char *const stages_bailing[] = {"'(?i:[sdmt]|ll|ve|re)|[^\\r\\n\\p{L}\\p{N}]?+\\p{L}+|\\p{N}| ?[^" SPACE
                                             "\\p{L}\\p{N}]++[\\r\\n]*|[" SPACE "]*[\\r\\n]|" BLANKS,
                                             NULL};
/* The end of a blank run is found from its beginning only: from every blank in it would take the square of its length.
 */
static const char *const stages_deepseek_llm[] = {
    "[\\r\\n]",
    "[" SPACE "]?[" DEEPSEEK_LETTERS "]+",
    "[" SPACE "]?[!-/:-~\\x{ff01}-\\x{ff0f}\\x{ff1a}-\\x{ff5e}\\x{2018}-\\x{201f}\\x{3000}-\\x{3002}]+",
    "(?<![" SPACE "])[" SPACE "]++\\z",
    HAN_KOREAN,
    "\\p{N}+",
    NULL};
static const char *const stages_deepseek_coder[] = {
    "[\\r\\n]", "[" SPACE "]?\\p{L}+", "[" SPACE "]?\\p{P}+", HAN_KOREAN, "\\p{N}", NULL};
static const char *const stages_deepseek_v3[] = {"\\p{N}{1,3}", CJK, DEEPSEEK_WORDS, NULL};
static const char *const stages_bloom[] = {
    " ?[^(" SPACE "|.,!?\\x{2026}\\x{3002}\\x{ff0c}\\x{3001}\\x{964}\\x{6d4}\\x{60c})]+", NULL};
static const char *const stages_viking[] = {
    " ?[^(" SPACE "|.,!?\\x{2026}\\x{3002}\\x{ff0c}\\x{3001}\\x{964}\\x{6d4}\\x{60c})]+", "\\p{N}", NULL};

static const struct pretok_rule rules[] = {
    /* name, stages, ignore_merges, add_bos */
    {"default", stages_default, 0, 0},
    {"gpt-2", stages_gpt2, 0, 0},
    {"phi-2", stages_gpt2, 0, 0},
    {"mpt", stages_gpt2, 0, 0},
    {"olmo", stages_gpt2, 0, 0},
    {"jais", stages_gpt2, 0, 0},
    {"trillion", stages_gpt2, 0, 0},
    {"granite-docling", stages_gpt2, 0, 0},
    {"gigachat", stages_gpt2, 0, 0},
    {"a.x-4.0", stages_gpt2, 0, 0},
    {"mellum", stages_gpt2, 0, 0},
    {"exaone4", stages_gpt2, 0, 0},
    {"starcoder", stages_digits_gpt2, 0, 0},
    {"refact", stages_digits_gpt2, 0, 0},
    {"command-r", stages_digits_gpt2, 0, 0},
    {"smollm", stages_digits_gpt2, 0, 0},
    {"codeshell", stages_digits_gpt2, 0, 0},
    {"exaone", stages_digits_gpt2, 0, 0},
    {"minerva-7b", stages_digits_gpt2, 0, 0},
    {"mellum2", stages_digits_gpt2, 0, 0},
    {"falcon", stages_falcon, 0, 0},
    {"llama-bpe", stages_llama3, 1, 1},
    {"llama3", stages_llama3, 1, 1},
    {"llama-v3", stages_llama3, 1, 1},
    {"lfm2", stages_llama3, 1, 1},
    {"falcon3", stages_llama3, 1, 1},
    {"falcon-h1", stages_llama3, 1, 1},
    {"pixtral", stages_llama3, 1, 1},
    {"midm-2.0", stages_llama3, 1, 1},
    {"dbrx", stages_llama3, 0, 0},
    {"smaug-bpe", stages_llama3, 0, 0},
    {"chatglm-bpe", stages_llama3, 0, 0},
    {"glm4", stages_llama3, 1, 0},
    {"glm5", stages_llama3, 1, 0},
    {"minicpm5", stages_minicpm5, 1, 0},
    {"qwen2", stages_qwen2, 0, 0},
    {"deepseek-r1-qwen", stages_qwen2, 0, 0},
    {"megrez", stages_qwen2, 0, 0},
    {"stablelm2", stages_qwen2, 0, 0},
    {"hunyuan", stages_qwen2, 0, 0},
    {"solar-open", stages_qwen2, 0, 0},
    {"grok-2", stages_qwen2, 0, 0},
    {"qwen35", stages_qwen35, 0, 0},
    {"laguna", stages_laguna, 0, 0},
    {"gpt-4o", stages_gpt4o, 0, 0},
    {"llama4", stages_gpt4o, 0, 0},
    {"kanana2", stages_gpt4o, 0, 0},
    {"minimax-m2", stages_gpt4o, 0, 0},
    {"tekken", stages_tekken, 1, 1},
    {"seed-coder", stages_seed, 0, 0},
    {"bailingmoe", stages_bailing, 0, 0},
    {"bailingmoe2", stages_bailing, 0, 0},
    {"llada-moe", stages_bailing, 0, 0},
    {"deepseek-llm", stages_deepseek_llm, 0, 0},
    {"deepseek-coder", stages_deepseek_coder, 0, 0},
    {"deepseek-v3", stages_deepseek_v3, 0, 0},
    {"hunyuan-dense", stages_deepseek_v3, 0, 0},
    {"joyai-llm", stages_deepseek_v3, 0, 0},
    {"bloom", stages_bloom, 0, 0},
    {"gpt3-finnish", stages_bloom, 0, 0},
    {"poro-chat", stages_bloom, 0, 0},
    {"viking", stages_viking, 0, 0},
};

const struct pretok_rule *pretok_find(const char *name, size_t len) {
    for (size_t i = 0; i < sizeof(rules) / sizeof(rules[0]); i++)
        if (strlen(rules[i].name) == len && memcmp(rules[i].name, name, len) == 0) return &rules[i];
    return NULL;
}
