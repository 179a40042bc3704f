/* What distinguishes one family of models from another when its file is read: a row of traits and, where keys of its
 * own matter, a function. families.c lists them; what all of them share is in keys.c and tensors.c. */
#ifndef MODEL_FAMILY_H
#define MODEL_FAMILY_H

#include "model/keys.h"
#include "model/spec.h"

struct family {
    const char *architecture; /* general.architecture, and the prefix of the keys */
    enum program_act act;
    int rope_interleaved; /* pairs are neighbours (2i, 2i + 1), else halves (i, i + pairs) */
    int head_norms;       /* norms over each query and key head */
    int post_norms;       /* norms of what attention and feed-forward give, before it is added */
    int qkv_biases;       /* required; where a file has biases without being required to, they are used all the same */
    int gate_up_fused;    /* ffn_up holds the gate's rows, then its own */
    int query_gated;      /* attn_q has a gate's rows behind each head's, which its output is multiplied by */
    int heads_may_lack;   /* a layer without key/value heads is no attention layer: `read` says what it is */
    const char *ffn_norm, *output_norm; /* other names of these tensors; NULL: the usual ones */
    int embed_scaled;                   /* embeddings are multiplied by sqrt(width) */
    /* Reads the family's own keys into the spec, after the common ones (may be NULL). */
    int (*read)(const struct keys *keys, struct model_spec *spec);
};

extern const struct family family_gemma2, family_gemma3, family_lfm2, family_llama, family_phi3, family_qwen2,
    family_qwen3, family_qwen35;

/* NULL if there is none of this name. */
const struct family *family_find(const struct meta_string *architecture);
/* The names, separated by blanks, for messages. */
void family_names(char *out, size_t size);

/* ---- For the families' `read` functions ---- */

/* attention.sliding_window (absent: `window`; 0: no layer has one) and which layers have it: every `pattern`-th is
 * global (0: none is), unless the file has a pattern of its own. The windowed layers get the rope table `rope`. */
int family_read_windows(const struct keys *keys, struct model_spec *spec, uint32_t window, uint32_t pattern,
                        uint32_t rope);
/* attn_logit_softcapping and final_logit_softcapping; absent: none. */
int family_read_softcaps(const struct keys *keys, struct model_spec *spec);
/* The queries' scale of every layer: 1 / sqrt(`square`). */
void family_set_scale(struct model_spec *spec, double square);

#endif
