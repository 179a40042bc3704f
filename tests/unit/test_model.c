/* What the families' files become: specs, programs, frequencies. (Whether the programs compute the right thing is
 * tests/vectors' subject.) */
#include "test_model.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "model/family.h"
#include "model/rope.h"
#include "model/spec.h"
#include "tiny_model.h"

static struct tiny build(struct gguf_writer *w) {
    struct tiny t;
    cohort_error err = {0};
    if (tiny_build(&t, w, &err)) fail_msg("%s", err.text);
    return t;
}

static struct tiny build_family(const char *family, uint32_t layers) {
    static struct gguf_writer w;
    tiny_make(&w, family, layers);
    struct tiny t = build(&w);
    gw_deinit(&w);
    return t;
}

/* ---- Programs ---- */

/* Every index of the program is in range, every register that is read was written before, widths fit. */
static void check_program(const struct program *p) {
    char written[PROGRAM_REGS_MAX] = {0};
    for (uint32_t i = 0; i < p->n_regs; i++) {
        const struct program_reg *r = &p->regs[i];
        assert_true(r->width > 0);
        if (r->parent < 0) continue;
        assert_true(p->regs[r->parent].parent < 0);
        assert_true(r->offset + r->width <= p->regs[r->parent].width);
    }
    for (uint32_t i = 0; i < p->n_ops; i++) {
        const struct op *op = &p->ops[i];
        const int16_t sources[] = {op->a, op->b, op->c};
        for (size_t s = 0; s < 3; s++) {
            if (sources[s] < 0) continue;
            assert_in_range(sources[s], 0, p->n_regs - 1);
            int32_t parent = p->regs[sources[s]].parent;
            assert_true(written[sources[s]] || (parent >= 0 && written[parent]));
        }
        if (op->kind == OP_ADD || op->kind == OP_ROPE) {
            int32_t parent = p->regs[op->dst].parent;
            assert_true(written[op->dst] || (parent >= 0 && written[parent]));
        }
        if (op->tensor >= 0) assert_in_range(op->tensor, 0, p->n_tensors - 1);
        if (op->kind == OP_MATMUL) {
            assert_int_equal(p->tensors[op->tensor].cols, p->regs[op->a].width);
            assert_int_equal(p->tensors[op->tensor].rows, p->regs[op->dst].width);
        }
        if (op->kind == OP_LOGITS)
            assert_int_equal(i, p->n_ops - 1);
        else
            written[op->dst] = 1;
    }
    assert_int_equal(p->ops[0].kind, OP_EMBED);
    assert_int_equal(p->ops[p->n_ops - 1].kind, OP_LOGITS);
}

static void test_every_family_builds(void **state) {
    for (size_t i = 0; tiny_families[i]; i++) {
        struct tiny t = build_family(tiny_families[i], TINY_LAYERS);
        const struct model_spec *spec = model_get_spec(t.model);
        const struct program *p = model_program(t.model);
        assert_string_equal(spec->architecture, tiny_families[i]);
        assert_int_equal(spec->n_layers, TINY_LAYERS);
        assert_int_equal(p->n_layers, TINY_LAYERS);
        assert_int_equal(p->vocab, TINY_VOCAB);
        assert_int_equal(p->context_trained, TINY_CONTEXT);
        uint64_t elements = 0;
        for (size_t k = 0; k < model_file_tensor_count(t.file); k++) {
            const struct file_tensor *x = model_file_tensor_at(t.file, k);
            elements += x->dims[0] * x->dims[1];
        }
        assert_int_equal(model_parameters(t.model), elements);
        check_program(p);
        tiny_free(&t);
    }
}

static const struct op *nth_op(const struct program *p, enum op_kind kind, uint32_t n) {
    for (uint32_t i = 0; i < p->n_ops; i++)
        if (p->ops[i].kind == kind && n-- == 0) return &p->ops[i];
    fail_msg("no such operation");
    return NULL;
}

static uint32_t count_ops(const struct program *p, enum op_kind kind) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < p->n_ops; i++) n += p->ops[i].kind == kind;
    return n;
}

/* The last layer stores keys and values of all tokens, and computes everything else for the wanted rows alone. */
static void test_only_wanted_rows_go_on(void **state) {
    for (size_t i = 0; tiny_families[i]; i++) {
        struct tiny t = build_family(tiny_families[i], TINY_LAYERS);
        const struct program *p = model_program(t.model);
        char wanted[PROGRAM_REGS_MAX] = {0}; /* rows are outputs, by register without parent */
        for (uint32_t k = 0; k < p->n_ops; k++) {
            const struct op *op = &p->ops[k];
            int from = op->a >= 0 ? op->a : op->dst;
            if (from >= 0 && p->regs[from].parent >= 0) from = p->regs[from].parent;
            int to = op->dst >= 0 && p->regs[op->dst].parent >= 0 ? p->regs[op->dst].parent : op->dst;
            if (op->kind == OP_LOGITS) assert_true(wanted[op->a]);
            if (op->kind == OP_ADD) assert_int_equal(wanted[to], wanted[from]);
            if (op->kind == OP_ATTEND) {
                assert_int_equal(wanted[from], op->layer == TINY_LAYERS - 1);
                assert_false(wanted[op->b] || wanted[op->c]);
            }
            if (op->kind == OP_CONV || op->kind == OP_DELTA) assert_false(wanted[from]);
            if (op->kind == OP_SELECT) assert_false(wanted[from]);
            if (to >= 0) wanted[to] = op->kind == OP_SELECT || (op->kind != OP_EMBED && wanted[from]);
        }
        int recurrent = p->groups[p->layers[TINY_LAYERS - 1].group].kind == GROUP_RECURRENT;
        assert_int_equal(count_ops(p, OP_SELECT), recurrent ? 3 : 2);
        tiny_free(&t);
    }
}

/* One group for all layers with states of one size; a convolution's tail lies before the delta rule's state. */
static void test_recurrent_groups(void **state) {
    struct tiny t = build_family("qwen35", 5);
    const struct program *p = model_program(t.model);
    uint32_t values = TINY_DELTA_HEADS * TINY_DELTA_WIDTH, tail = (TINY_TAPS - 1) * 2 * values;
    assert_int_equal(p->n_groups, 2);
    assert_int_equal(p->groups[0].kind, GROUP_RECURRENT);
    assert_int_equal(p->groups[0].layers, 3);
    assert_int_equal(p->groups[0].floats, tail + values * TINY_DELTA_WIDTH);
    assert_int_equal(p->groups[1].kind, GROUP_ATTENTION);
    assert_int_equal(p->groups[1].layers, 2);
    for (uint32_t i = 0; i < 5; i++) {
        assert_int_equal(p->layers[i].group, i % 2);
        assert_int_equal(p->layers[i].slot, i / 2);
    }
    assert_int_equal(count_ops(p, OP_CONV), 3);
    assert_int_equal(count_ops(p, OP_DELTA), 3);
    assert_int_equal(count_ops(p, OP_SPLIT), 4);
    const struct op *delta = nth_op(p, OP_DELTA, 2);
    assert_int_equal(delta->layer, 4);
    assert_int_equal(delta->offset, tail);
    assert_int_equal(delta->heads, TINY_DELTA_HEADS);
    assert_int_equal(delta->key_heads, TINY_DELTA_HEADS / 2);
    tiny_free(&t);
    t = build_family("lfm2", 3);
    p = model_program(t.model);
    assert_int_equal(p->n_groups, 2);
    assert_int_equal(p->groups[0].kind, GROUP_RECURRENT);
    assert_int_equal(p->groups[0].layers, 2);
    assert_int_equal(p->groups[0].floats, (TINY_TAPS - 1) * TINY_WIDTH);
    tiny_free(&t);
}

/* The flags, layer by layer, are heard before the interval. */
static void test_recurrent_flags(void **state) {
    static struct gguf_writer w;
    static const uint8_t flags[4] = {1, 0, 1, 0};
    tiny_make(&w, "qwen35", 4);
    gw_u32(&w, "qwen35.full_attention_interval", 3);
    gw_array(&w, "qwen35.attention.recurrent_layers", META_BOOL, 4, 1, flags);
    struct tiny t = build(&w);
    const struct model_spec *spec = model_get_spec(t.model);
    for (uint32_t i = 0; i < 4; i++)
        assert_int_equal(spec->layers[i].mixer, flags[i] ? SPEC_GATED_DELTA : SPEC_ATTENTION);
    tiny_free(&t);
    gw_deinit(&w);
}

static void test_fused_matrices_are_views(void **state) {
    struct tiny t = build_family("phi3", 2);
    const struct program *p = model_program(t.model);
    assert_int_equal(count_ops(p, OP_MATMUL), 8);
    const struct op *attend = nth_op(p, OP_ATTEND, 0), *glu = nth_op(p, OP_GLU, 0);
    uint32_t head = TINY_WIDTH / TINY_HEADS;
    const struct program_reg *q = &p->regs[attend->a], *k = &p->regs[attend->b], *v = &p->regs[attend->c];
    assert_int_equal(q->parent, nth_op(p, OP_MATMUL, 0)->dst);
    assert_int_equal(q->offset, 0);
    assert_int_equal(k->parent, q->parent);
    assert_int_equal(v->parent, k->parent);
    assert_int_equal(k->offset, TINY_HEADS * head);
    assert_int_equal(v->offset, (TINY_HEADS + TINY_KV_HEADS) * head);
    assert_int_equal(v->width, TINY_KV_HEADS * head);
    assert_int_equal(p->regs[glu->a].offset, 0); /* the gate comes first */
    assert_int_equal(p->regs[glu->b].offset, TINY_FFN);
    assert_int_equal(p->ropes[0].interleaved, 0);
    tiny_free(&t);
}

static void test_rope_pairs(void **state) {
    for (size_t i = 0; tiny_families[i]; i++) {
        struct tiny t = build_family(tiny_families[i], 1);
        const struct program_rope *r = &model_program(t.model)->ropes[0];
        assert_int_equal(r->interleaved, strcmp(tiny_families[i], "llama") == 0);
        tiny_free(&t);
    }
}

static void test_tied_head_is_one_tensor(void **state) {
    struct tiny t = build_family("gemma3", 1);
    const struct program *p = model_program(t.model);
    assert_int_equal(model_get_spec(t.model)->tied, 1);
    assert_int_equal(nth_op(p, OP_EMBED, 0)->tensor, nth_op(p, OP_LOGITS, 0)->tensor);
    tiny_free(&t);
    t = build_family("qwen3", 1);
    p = model_program(t.model);
    assert_int_equal(model_get_spec(t.model)->tied, 0);
    assert_int_not_equal(nth_op(p, OP_EMBED, 0)->tensor, nth_op(p, OP_LOGITS, 0)->tensor);
    tiny_free(&t);
}

static void test_padding_rows_are_left_out(void **state) {
    static struct gguf_writer w;
    tiny_make(&w, "qwen2", 1);
    gw_floats(&w, "token_embd.weight", TINY_WIDTH, TINY_VOCAB + 24, NULL);
    gw_floats(&w, "output.weight", TINY_WIDTH, TINY_VOCAB + 24, NULL);
    struct tiny t = build(&w);
    const struct program *p = model_program(t.model);
    assert_int_equal(p->vocab, TINY_VOCAB);
    const struct program_tensor *head = &p->tensors[nth_op(p, OP_LOGITS, 0)->tensor];
    assert_int_equal(head->rows, TINY_VOCAB);
    assert_int_equal(head->bytes, TINY_VOCAB * TINY_WIDTH * sizeof(float));
    tiny_free(&t);
    gw_deinit(&w);
}

static void test_biases_are_used_where_they_are(void **state) {
    static struct gguf_writer w;
    tiny_make(&w, "llama", 1);
    gw_floats(&w, "blk.0.attn_output.bias", TINY_WIDTH, 1, NULL);
    gw_floats(&w, "blk.0.ffn_down.bias", TINY_WIDTH, 1, NULL);
    struct tiny t = build(&w);
    const struct program *p = model_program(t.model);
    uint32_t biased = 0;
    for (uint32_t i = 0; i < p->n_ops; i++) biased += p->ops[i].bias >= 0;
    assert_int_equal(biased, 2);
    tiny_free(&t);
    gw_deinit(&w);
}

/* ---- Forms of state ---- */

static void test_forms_make_groups(void **state) {
    static struct gguf_writer w;
    static struct state_forms forms;
    tiny_make(&w, "gemma3", 7);
    gw_u32(&w, "gemma3.attention.sliding_window", 16);
    struct tiny t = build(&w);
    const struct program *p = model_program(t.model);
    assert_int_equal(p->n_groups, 2);
    for (int i = 0; i < 7; i++) assert_null(p->layers[i].balance);
    for (int i = 0; i < 7; i++) forms.layer[i] = (struct layer_forms){FORM_Q4, FORM_Q8};
    forms.layer[2].key = FORM_F16;
    assert_int_equal(model_set_forms(t.model, &forms, NULL), 0);
    assert_int_equal(p->n_groups, 3);
    assert_int_equal(p->groups[p->layers[2].group].layers, 1);
    for (int i = 0; i < 7; i++) {
        const struct program_group *g = &p->groups[p->layers[i].group];
        assert_int_equal(p->layers[i].late, -1);
        assert_int_equal(g->key_form, i == 2 ? FORM_F16 : FORM_Q4);
        assert_int_equal(g->value_form, FORM_Q8);
        assert_int_equal(p->layers[i].balance != NULL, i != 2);
    }
    for (int i = 0; i < 7; i++) forms.layer[i] = (struct layer_forms){FORM_F16, FORM_Q4};
    forms.after = 64;
    assert_int_equal(model_set_forms(t.model, &forms, NULL), 0);
    assert_int_equal(p->n_groups, 4);
    uint32_t slots[PROGRAM_GROUPS_MAX] = {0};
    for (int i = 0; i < 7; i++) {
        const struct program_layer *l = &p->layers[i];
        const struct program_group *early = &p->groups[l->group], *late = &p->groups[l->late];
        assert_int_equal(early->value_form, FORM_F16);
        assert_int_equal(late->value_form, FORM_Q4);
        assert_true(early->begin == 0 && early->end == 64 && late->begin == 64 && late->end == 0);
        assert_int_equal(early->window, i == 5 ? 0 : 16);
        assert_int_equal(late->window, early->window);
        assert_int_equal(early->layers, late->layers);
        assert_int_equal(l->slot, slots[l->group]++);
    }
    forms.layer[3] = (struct layer_forms){FORM_F16, FORM_F16};
    cohort_error err;
    assert_int_equal(model_set_forms(t.model, &forms, &err), COHORT_E_UNSUPPORTED);
    assert_non_null(strstr(err.text, "more than 4 kinds"));
    assert_int_equal(p->n_groups, 4); /* as it was */
    tiny_free(&t);
    gw_deinit(&w);
}

/* Columns that are large in keys are made smaller, as much as queries allow, by powers of two and in pairs. */
static void test_balance_of_keys(void **state) {
    static struct gguf_writer w;
    static struct state_forms forms;
    tiny_make(&w, "gemma3", 2);
    struct tiny t = build(&w);
    memset(&forms, 0, sizeof forms);
    forms.layer[0].key = FORM_Q4;
    forms.layer[1].key = FORM_Q8;
    assert_int_equal(model_set_forms(t.model, &forms, NULL), 0);
    const struct spec_attention *a = &model_get_spec(t.model)->layers[0].attention;
    const float *q = a->query_norm->data, *k = a->key_norm->data, *balance = model_program(t.model)->layers[0].balance;
    assert_non_null(model_program(t.model)->layers[1].balance);
    uint32_t half = a->key_width / 2;
    for (uint32_t d = 0; d < half; d++) {
        double energy_q = (double)q[d] * (double)q[d] + (double)q[d + half] * (double)q[d + half];
        double energy_k = (double)k[d] * (double)k[d] + (double)k[d + half] * (double)k[d + half];
        double power = round(log2(energy_q / energy_k) / 4);
        assert_true(fabs((double)balance[d] - exp2(power)) < 1e-9);
        assert_true(balance[d] == balance[d + half]);
    }
    tiny_free(&t);
    gw_deinit(&w);
}

/* ---- What the Gemmas say by leaving it out ---- */

static void test_gemma3_defaults(void **state) {
    static struct gguf_writer w;
    tiny_make(&w, "gemma3", 7);
    gw_u32(&w, "gemma3.attention.sliding_window", 16);
    gw_f32(&w, "gemma3.rope.freq_base", 1000000);
    gw_string(&w, "gemma3.rope.scaling.type", "linear");
    gw_f32(&w, "gemma3.rope.scaling.factor", 8);
    struct tiny t = build(&w);
    const struct model_spec *spec = model_get_spec(t.model);
    const struct program *p = model_program(t.model);
    for (uint32_t i = 0; i < 7; i++) {
        assert_int_equal(spec->layers[i].attention.window, i == 5 ? 0 : 16);
        assert_int_equal(spec->layers[i].attention.rope, i == 5 ? 0 : 1);
        assert_true(spec->layers[i].attention.scale == 0.25f);
    }
    assert_int_equal(p->n_groups, 2);
    assert_int_equal(p->groups[0].window, 16);
    assert_int_equal(p->groups[0].layers, 6);
    assert_int_equal(p->groups[1].window, 0);
    assert_int_equal(p->groups[1].layers, 1);
    assert_int_equal(p->layers[5].group, 1);
    assert_int_equal(p->layers[6].group, 0);
    assert_int_equal(p->layers[6].slot, 5);
    assert_true(spec->embed_scale == (float)sqrt(TINY_WIDTH));
    /* Base 10000 without scaling in the windowed layers, base 1000000 and the factor in the global one. */
    assert_float_equal(p->ropes[1].frequency[1], pow(10000, -1.0 / 8), 1e-12);
    assert_float_equal(p->ropes[0].frequency[1], pow(1000000, -1.0 / 8) / 8, 1e-12);
    tiny_free(&t);
    gw_deinit(&w);
}

static void test_gemma2_defaults(void **state) {
    static struct gguf_writer w;
    tiny_make(&w, "gemma2", 4);
    gw_f32(&w, "gemma2.attn_logit_softcapping", 50);
    gw_f32(&w, "gemma2.final_logit_softcapping", 30);
    struct tiny t = build(&w);
    const struct model_spec *spec = model_get_spec(t.model);
    for (uint32_t i = 0; i < 4; i++) {
        assert_int_equal(spec->layers[i].attention.window, i % 2 ? 0 : 4096);
        assert_true(spec->layers[i].attention.softcap == 50);
    }
    assert_true(spec->logits_cap == 30);
    assert_float_equal(model_program(t.model)->ropes[0].frequency[4], 0.01, 1e-12);
    tiny_free(&t);
    gw_deinit(&w);
}

static void test_window_patterns(void **state) {
    static struct gguf_writer w;
    tiny_make(&w, "gemma3", 3);
    gw_u32(&w, "gemma3.attention.sliding_window", 16);
    gw_array(&w, "gemma3.attention.sliding_window_pattern", META_BOOL, 3, 1, (const uint8_t[]){0, 1, 0});
    struct tiny t = build(&w);
    const struct model_spec *spec = model_get_spec(t.model);
    assert_int_equal(spec->layers[0].attention.window, 0);
    assert_int_equal(spec->layers[1].attention.window, 16);
    assert_int_equal(spec->layers[2].attention.window, 0);
    tiny_free(&t);

    gw_u32(&w, "gemma3.attention.sliding_window_pattern", 2);
    t = build(&w);
    spec = model_get_spec(t.model);
    assert_int_equal(spec->layers[0].attention.window, 16);
    assert_int_equal(spec->layers[1].attention.window, 0);
    tiny_free(&t);

    gw_u32(&w, "gemma3.attention.sliding_window", 0);
    t = build(&w);
    for (uint32_t i = 0; i < 3; i++) assert_int_equal(model_get_spec(t.model)->layers[i].attention.window, 0);
    assert_int_equal(model_program(t.model)->n_groups, 1);
    tiny_free(&t);
    gw_deinit(&w);
}

/* The largest Gemmas divide by the width per head, not by the heads' own width. */
static void test_scale_of_the_largest_gemmas(void **state) {
    static struct gguf_writer w;
    tiny_make(&w, "gemma2", 18); /* the writer's list is not long enough for 46 layers of tensors */
    gw_u32(&w, "gemma2.block_count", 46);
    void *bytes;
    size_t n = gw_finish(&w, &bytes);
    struct model_file *file;
    assert_int_equal(model_file_from_memory(bytes, n, &file, NULL), 0);
    struct keys keys = {.meta = model_file_meta(file), .prefix = "gemma2"};
    struct model_spec spec = {.vocab = TINY_VOCAB};
    assert_int_equal(keys_read(&keys, &family_gemma2, &spec), 0);
    assert_true(spec.layers[45].attention.scale == (float)(1 / sqrt((double)TINY_WIDTH / TINY_HEADS)));
    mem_free(spec.layers);
    model_file_close(file);
    free(bytes);
    gw_deinit(&w);
}

static void test_arrays_say_it_by_layer(void **state) {
    static struct gguf_writer w;
    tiny_make(&w, "llama", 3);
    gw_array(&w, "llama.attention.head_count_kv", META_I32, 3, 4, (const int32_t[]){2, 1, 2});
    gw_floats(&w, "blk.1.attn_k.weight", TINY_WIDTH, TINY_HEAD_WIDTH, NULL);
    gw_floats(&w, "blk.1.attn_v.weight", TINY_WIDTH, TINY_HEAD_WIDTH, NULL);
    struct tiny t = build(&w);
    const struct program *p = model_program(t.model);
    check_program(p);
    assert_int_equal(p->n_groups, 2);
    assert_int_equal(p->groups[0].layers, 2);
    assert_int_equal(p->groups[1].kv_heads, 1);
    assert_int_equal(p->layers[2].slot, 1);
    tiny_free(&t);
    gw_deinit(&w);
}

/* ---- Frequencies ---- */

static void check_frequencies(const struct spec_rope *rope, const double *want, double magnitude) {
    struct program_rope out;
    cohort_error err;
    assert_int_equal(rope_make(rope, &out, &err), 0);
    for (uint32_t i = 0; i < rope->pairs; i++)
        if (fabs(out.frequency[i] - want[i]) > 1e-13 * want[i])
            fail_msg("frequency %u is %.17g, not %.17g", i, out.frequency[i], want[i]);
    assert_true(out.magnitude == (float)magnitude);
    mem_free(out.frequency);
}

static void test_frequencies(void **state) {
    struct spec_rope rope = {.pairs = 4, .base = 10000, .factor = 1, .magnitude = 1};
    check_frequencies(&rope, (const double[]){1, 0.1, 0.01, 0.001}, 1);
    rope.scaling = SPEC_ROPE_LINEAR;
    rope.factor = 8;
    check_frequencies(&rope, (const double[]){0.125, 0.0125, 0.00125, 0.000125}, 1);
    rope.scaling = SPEC_ROPE_PLAIN;
    const struct file_tensor factors = {.name = "rope_freqs.weight", .data = (const float[]){1, 2, 4, 8}};
    rope.factors = &factors;
    check_frequencies(&rope, (const double[]){1, 0.05, 0.0025, 0.000125}, 1);
}

/* Computed with the published formula in another language: 16 dimensions, a context of 4096 made 4 times as long, the
 * ramp runs from pair 2 to pair 6. */
static void test_yarn(void **state) {
    static struct gguf_writer w;
    tiny_make(&w, "qwen3", 1);
    gw_string(&w, "qwen3.rope.scaling.type", "yarn");
    gw_f32(&w, "qwen3.rope.scaling.factor", 4);
    gw_u32(&w, "qwen3.rope.scaling.original_context_length", 4096);
    struct tiny t = build(&w);
    const struct spec_rope *rope = &model_get_spec(t.model)->ropes[0];
    check_frequencies(rope,
                      (const double[]){1, 0.31622776601683794, 0.1, 0.02569350598886808, 0.00625, 0.0013834964763236657,
                                       0.00025, 7.905694150420948e-05},
                      1.138629436111989);
    tiny_free(&t);
    gw_f32(&w, "qwen3.rope.scaling.yarn_attn_factor", 1.5f);
    gw_f32(&w, "qwen3.rope.scaling.attn_factor", 2);
    t = build(&w);
    assert_true(model_program(t.model)->ropes[0].magnitude == 3);
    tiny_free(&t);
    gw_deinit(&w);
}

/* Where the ramp would leave the head it is cut: from the first pair, to the last dimension. */
static void test_yarn_ramp_is_cut(void **state) {
    struct spec_rope rope = {
        .pairs = 4, .scaling = SPEC_ROPE_YARN, .factor = 2, .magnitude = 1, .beta_fast = 32, .beta_slow = 1};
    rope.base = 10000;
    rope.original_context = 64;
    check_frequencies(&rope, (const double[]){1, 0.075, 0.005, 0.0005}, 1);
    rope.base = 4;
    rope.original_context = 100;
    check_frequencies(&rope, (const double[]){1, 0.656599153958937, 0.4285714285714286, 0.27779194975185795}, 1);
}

static void test_factors_tensor_reaches_the_table(void **state) {
    static struct gguf_writer w;
    tiny_make(&w, "llama", 1);
    float factors[TINY_HEAD_WIDTH / 2] = {1, 1, 1, 1, 4, 4, 8, 8};
    gw_floats(&w, "rope_freqs.weight", TINY_HEAD_WIDTH / 2, 1, factors);
    struct tiny t = build(&w);
    assert_float_equal(model_program(t.model)->ropes[0].frequency[4], 0.01 / 4, 1e-12);
    tiny_free(&t);
    gw_deinit(&w);
}

/* ---- Memory ---- */

static void test_every_allocation_may_fail(void **state) {
    static struct gguf_writer w;
    tiny_make(&w, "gemma3", 2);
    void *bytes;
    size_t n = gw_finish(&w, &bytes);
    struct model_file *file;
    assert_int_equal(model_file_from_memory(bytes, n, &file, NULL), 0);
    int rc = COHORT_E_MEMORY;
    uint64_t nth = 0;
    while (rc == COHORT_E_MEMORY) {
        struct model *model;
        mem_fail_at(++nth, 1);
        rc = model_build(file, TINY_VOCAB, &model, NULL);
        mem_fail_at(0, 0);
        assert_true(rc == 0 || (rc == COHORT_E_MEMORY && model == NULL));
        model_free(model);
    }
    assert_true(nth > 5);
    model_file_close(file);
    free(bytes);
    gw_deinit(&w);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_family_builds),
        cmocka_unit_test(test_recurrent_groups),
        cmocka_unit_test(test_recurrent_flags),
        cmocka_unit_test(test_only_wanted_rows_go_on),
        cmocka_unit_test(test_fused_matrices_are_views),
        cmocka_unit_test(test_rope_pairs),
        cmocka_unit_test(test_tied_head_is_one_tensor),
        cmocka_unit_test(test_padding_rows_are_left_out),
        cmocka_unit_test(test_biases_are_used_where_they_are),
        cmocka_unit_test(test_forms_make_groups),
        cmocka_unit_test(test_balance_of_keys),
        cmocka_unit_test(test_gemma3_defaults),
        cmocka_unit_test(test_gemma2_defaults),
        cmocka_unit_test(test_window_patterns),
        cmocka_unit_test(test_scale_of_the_largest_gemmas),
        cmocka_unit_test(test_arrays_say_it_by_layer),
        cmocka_unit_test(test_frequencies),
        cmocka_unit_test(test_yarn),
        cmocka_unit_test(test_yarn_ramp_is_cut),
        cmocka_unit_test(test_factors_tensor_reaches_the_table),
        cmocka_unit_test(test_every_allocation_may_fail),
        cmocka_unit_test(test_hostile_keys),
        cmocka_unit_test(test_hostile_tensors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
