"""Options of TRL, LLaMA-Factory, Axolotl, Unsloth and verl, and what each is called in burnish.

One table for unknown flags, YAML keys and keyword arguments (`answer`), and for `burnish import`.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from inspect import signature

from burnish.core.option import ANY, options_of
from burnish.methods.table import METHODS, load_all

_ACTOR, _ROLLOUT = "actor_rollout_ref.actor", "actor_rollout_ref.rollout"

# Ours -> theirs. Alternatives are separated by "|": the first that the method has is meant. After a blank: the value.
COUNTERPARTS: dict[str, str] = {
    "model": "model_name_or_path model_name base_model pretrained pretrain_path actor_rollout_ref.model.path "
    "model.partial_pretrain",
    "task": "dataset dataset_name dataset_path datasets train_dataset train_file train_files data_path "
    "data.train_files "
    "prompt_data",
    "steps": "max_steps max_train_steps total_training_steps num_steps trainer.total_training_steps",
    "epochs|steps": "num_train_epochs num_epochs total_epochs max_epochs trainer.total_epochs",
    "prompts": "per_device_train_batch_size train_batch_size batch_size gradient_accumulation_steps micro_batch_size "
    "rollout_batch_size generation_batch_size effective_batch_size data.train_batch_size global_batch_size",
    "token_budget": "data.micro_batch_size_per_gpu "
    "micro_train_batch_size ppo_micro_batch_size ppo_micro_batch_size_per_gpu "
    f"{_ACTOR}.ppo_micro_batch_size_per_gpu {_ACTOR}.ppo_micro_batch_size {_ACTOR}.ppo_max_token_len_per_gpu",
    "max_new_tokens": "max_completion_length max_response_length response_length generate_max_len completion_length "
    "max_tokens data.max_response_length",
    "max_length": "max_prompt_length max_seq_length max_seq_len cutoff_len sequence_len max_model_length "
    "prompt_max_len "
    "data.max_prompt_length data.max_length",
    "n": f"num_generations num_return_sequences group_size n_samples_per_prompt samples_per_prompt "
    f"num_samples {_ROLLOUT}.n",
    "temperature": f"sampling_temperature {_ROLLOUT}.temperature",
    "top_p": f"{_ROLLOUT}.top_p",
    "top_k": f"{_ROLLOUT}.top_k",
    "lr": f"learning_rate actor_learning_rate actor_lr {_ACTOR}.optim.lr optim.lr",
    "lr_schedule": f"lr_scheduler_type lr_scheduler scheduler {_ACTOR}.optim.lr_scheduler_type",
    "lr_warmup": "warmup_ratio warmup_steps lr_warmup_steps lr_warmup_ratio num_warmup_steps "
    f"{_ACTOR}.optim.lr_warmup_steps {_ACTOR}.optim.lr_warmup_steps_ratio",
    "lr_min": f"min_lr_ratio min_lr_rate cosine_min_lr_ratio lr_scheduler_kwargs.min_lr_rate "
    f"{_ACTOR}.optim.min_lr_ratio",
    "critic_lr": "critic_learning_rate critic.optim.lr",
    "critic": "critic.model.path",
    "optimiser": "optim optimizer",
    "shard": "shard_optimiser zero_stage sharding_strategy",
    "shard_ranks": "hsdp_shard_dim_size dp_shard_size fsdp_size hybrid_shard",
    "context_ranks": f"context_parallel_size sequence_parallel_size cp_size {_ACTOR}.ulysses_sequence_parallel_size",
    "weight_decay": f"adam_weight_decay l2 {_ACTOR}.optim.weight_decay",
    "clip": f"max_grad_norm grad_clip max_norm gradient_clip_val gradient_clipping {_ACTOR}.grad_clip",
    "eps|eps_low": f"epsilon epsilon_low cliprange clip_range clip_ratio eps_clip ppo_clip {_ACTOR}.clip_ratio "
    f"{_ACTOR}.clip_ratio_low clip_ratio_low",
    "eps_high": f"epsilon_high clip_ratio_high eps_clip_high {_ACTOR}.clip_ratio_high",
    "value_eps": "cliprange_value value_clip critic.cliprange_value",
    "beta|kl": f"pref_beta kl_coef kl_coeff kto_beta dpo_beta init_kl_coef init_kl_coeff kl_loss_coef "
    f"{_ACTOR}.kl_loss_coef "
    "algorithm.kl_ctrl.kl_coef",
    "lam": "gae_lambda lambda_ lambd algorithm.lam",
    "gamma": "algorithm.gamma",
    "value_coef": "vf_coef",
    "updates|epochs": f"num_iterations ppo_epochs num_ppo_epochs {_ACTOR}.ppo_epochs",
    "minibatches": f"num_mini_batches ppo_mini_batch_size mini_batch_size {_ACTOR}.ppo_mini_batch_size",
    "ranks": "num_processes nproc_per_node num_gpus n_gpus trainer.n_gpus_per_node trainer.devices",
    "lora": "lora_r lora_rank peft_lora_r use_peft use_lora actor_rollout_ref.model.lora_rank peft.r",
    "lora_alpha": "peft_lora_alpha actor_rollout_ref.model.lora_alpha peft.lora_alpha",
    "lora_dropout": "peft_lora_dropout peft.lora_dropout",
    "lora_targets": "lora_target lora_target_modules target_modules lora_target_linear peft_target_modules "
    "actor_rollout_ref.model.target_modules peft.target_modules",
    "lora_variant": "use_rslora use_dora peft_use_rslora peft_use_dora lora_use_rslora lora_use_dora",
    "lora_save": "lora_modules_to_save modules_to_save additional_target peft.modules_to_save",
    "quantization nf4": "load_in_4bit quantization_bit",
    "merge": "merge_lora export_merged save_pretrained_merged",
    "reward": "reward_funcs reward_func reward_function remote_rm_url custom_reward_function.path",
    "reward_model": "reward_model_name_or_path reward_model_path reward_pretrain reward_model.model.path",
    "teacher": "teacher_model teacher_model_name_or_path",
    "chat_template": "template chat_template_path chat_template_jinja apply_chat_template",
    "system_prompt": "default_system system",
    "template_option enable_thinking=false": "enable_thinking",
    "checkpoint_activations": "gradient_checkpointing use_gradient_checkpointing activation_checkpointing "
    "enable_gradient_checkpointing actor_rollout_ref.model.enable_gradient_checkpointing",
    "checkpoint_activations offload": "activation_offloading offload_activations "
    "actor_rollout_ref.model.enable_activation_offload",
    "packed": "packing sample_packing use_remove_padding actor_rollout_ref.model.use_remove_padding",
    "dtype": "bf16 fp16 torch_dtype model_dtype mixed_precision tf32",
    "engine vllm": f"use_vllm fast_inference vllm_mode vllm_num_engines {_ROLLOUT}.name",
    "kv_gib": f"vllm_gpu_memory_utilization gpu_memory_utilization {_ROLLOUT}.gpu_memory_utilization",
    "out": "output_dir output_path save_path default_local_dir trainer.default_local_dir",
    "run_name": "experiment_name wandb_run_name wandb_name exp_name trainer.experiment_name",
    "tag": "tags wandb_tags project_name wandb_project trainer.project_name",
    "log": "report_to loggers logger use_wandb trainer.logger",
    "save_every": "save_steps save_freq save_interval checkpoint_every trainer.save_freq",
    "eval_every": "eval_steps eval_freq test_freq evaluation_steps trainer.test_freq",
    "eval_tasks": "max_eval_samples eval_samples max_val_samples",
    "tasks": "limit max_rows num_rows max_examples num_examples max_problems num_problems",
    "keep": "save_total_limit max_checkpoints_to_keep trainer.max_actor_ckpt_to_keep",
    "product best": "load_best_model_at_end",
    "patience": "early_stopping_patience early_stopping",
    "resume": "resume_from_checkpoint",
    "seed": "data_seed random_seed random_state data.seed",
    "device": "no_cuda use_cpu cpu",
    "lag": "async_level max_staleness off_policy_steps",
    "samplers": "num_rollout_workers",
    "label_smoothing": "label_smoothing_factor",
}

# The reason why burnish has no counterpart -> theirs
WITHOUT: dict[str, str] = {
    "every step is recorded in the run store": "logging_steps logging_strategy logging_dir "
    "logging_first_step log_completions "
    "num_completions_to_print plot_loss log_freq include_num_input_tokens_seen log_level log_on_each_node disable_tqdm",
    "saving and evaluating go by steps: --save-every, --eval-every": "save_strategy eval_strategy evaluation_strategy "
    "saves_per_epoch evals_per_epoch do_train do_eval do_predict eval_on_start trainer.val_before_train "
    "metric_for_best_model greater_is_better save_only_model save_safetensors",
    "the split is the data's own test or validation split, or a tenth of the prompts": "val_size "
    "val_set_size eval_dataset "
    "dataset_test_split dataset_train_split test_size data.val_files val_files validation_split eval_split",
    "--ranks N uses N GPUs; --shard states divides gradients, moments and fp32 weights among them, --shard full "
    "the weights, too": "deepspeed "
    "fsdp fsdp_config "
    "fsdp_version offload_params "
    f"ddp_timeout trainer.nnodes tensor_parallel_size vllm_tensor_parallel_size {_ROLLOUT}.tensor_model_parallel_size "
    f"{_ACTOR}.fsdp_config.param_offload {_ACTOR}.fsdp_config.optimizer_offload ddp_find_unused_parameters "
    "ref_num_nodes "
    f"actor_rollout_ref.ref.fsdp_config.param_offload local_rank world_size",
    "evaluation batches are chosen by memory": "per_device_eval_batch_size eval_batch_size data.val_batch_size "
    "eval_accumulation_steps",
    "the optimiser is AdamW with betas 0.9 and 0.999": "adam_beta1 adam_beta2 adam_epsilon adafactor "
    f"optim_args optim_target_modules {_ACTOR}.optim.betas",
    "LoRA adapters are those of a causal language model, without biases": "lora_bias lora_task_type",
    "activations are recomputed without reentrance": "gradient_checkpointing_kwargs use_reentrant "
    "gradient_checkpointing_kwargs.use_reentrant",
    "weights are quantised to four bits only: --quantization nf4": "load_in_8bit quantization_method "
    "bnb_4bit_quant_type bnb_4bit_compute_dtype use_bnb_nested_quant",
    "attention kernels are chosen by the device": "attn_implementation flash_attn flash_attention "
    "use_flash_attention_2 "
    "use_liger_kernel use_liger_loss enable_liger_kernel xformers_attention unsloth torch_compile use_unsloth",
    "code from model repositories is never run": "trust_remote_code trust_remote_code_model data.trust_remote_code",
    "files are read once, in the run's process": "dataloader_num_workers dataset_num_proc preprocessing_num_workers "
    "overwrite_cache dataloader_drop_last dataloader_pin_memory dataloader_prefetch_factor "
    "dataset_prepared_path num_proc "
    "data.filter_overlong_prompts_workers cache_dir tokenized_path dataset_streaming",
    "write it after the name of the model: owner/name@revision": "model_revision revision",
    "a run folder is never overwritten": "overwrite_output_dir",
    "a run uploads nothing; `burnish push RUN OWNER/NAME` does": "push_to_hub "
    "hub_model_id hub_token hub_strategy hub_private_repo",
    "columns that a task does not use are passed to the reward function": "remove_unused_columns",
    "replies are always sampled; --temperature, --top-p, --top-k and --min-p say how": "do_sample num_beams "
    f"{_ROLLOUT}.do_sample",
    "a method has its own reference; --swap changes parts": "ref_model sync_ref_model ref_model_mixup_alpha "
    "ref_model_sync_steps ref_model_name_or_path",
    "log-probs are computed in micro-batches of --token-budget": f"{_ROLLOUT}.log_prob_micro_batch_size_per_gpu "
    f"actor_rollout_ref.ref.log_prob_micro_batch_size_per_gpu {_ROLLOUT}.log_prob_micro_batch_size "
    f"actor_rollout_ref.ref.log_prob_micro_batch_size {_ACTOR}.use_dynamic_bsz {_ROLLOUT}.enforce_eager "
    f"{_ROLLOUT}.free_cache_engine {_ROLLOUT}.load_format {_ROLLOUT}.max_num_batched_tokens",
    "the last checkpoint is found by burnish train --resume RUN": "auto_resume_from_checkpoints trainer.resume_mode",
    "the number of rows is the file's": "max_samples max_train_samples data.train_max_samples",
    "a Ray run has flags of its own, listed by --help-all": "n_gpus_per_node hybrid_engine "
    "actor_rollout_ref.hybrid_engine ray_kwargs",
    "every reply counts; --shape unfinished gives those that were cut off a reward of their own": ""
    "mask_truncated_completions",
    "rows and models are prepared by burnish itself": "dataset_kwargs eos_token pad_token cast_lm_head_to_fp32 "
    "precompute_ref_batch_size torch_empty_cache_steps bnb_4bit_quant_storage lora_target_parameters "
    "chat_template_kwargs",
    "burnish samples with its own engine, or with vLLM as --engine vllm starts it": "vllm_model_impl vllm_group_port "
    "vllm_structured_outputs_regex vllm_importance_sampling_clip_min vllm_importance_sampling_cap generation_kwargs "
    "use_transformers_continuous_batching transformers_continuous_batching_config use_transformers_paged "
    "vllm_mode_server log_multimodal log_completions_hub_repo",
    "the KL is not multiplied by the ratio": "use_bias_correction_kl",
    "rewards are summed with their weights, then compared within the group": "multi_objective_aggregation",
    "it is a method of its own: high_entropy_tokens": "top_entropy_quantile",
    "the most turns of an episode are --turns": "max_tool_calling_iterations",
    "replies are of the present weights unless --lag says otherwise": "off_policy_mask_threshold",
    "advantages are those of the method; --swap changes parts": "normalize_advantages reward_clip_range "
    "use_adaptive_entropy entropy_coef_min entropy_coef_max entropy_coef_delta entropy_target whiten_rewards",
    "it is a method of its own: wpo": "use_weighting dpo_use_weighting",
    "it is a method of its own: ld_dpo": "ld_alpha",
    "it is a method of its own: f_dpo": "f_divergence_type f_alpha_divergence_coef",
    "the policy's loss has no entropy bonus": "entropy_coeff entropy_coef",
    "the critic learns from the first step": "critic_warmup trainer.critic_warmup",
    "one seed is the root of all randomness: --seed": "lora_random_state",
    "dropout is off": "disable_dropout",
    "rows of different kinds are never padded to each other": "padding_free eval_packing packing_strategy "
    "pad_to_multiple_of pad_to_sequence_len group_by_length group_by_modality_length data.pad_mode "
    "train_sampling_strategy eval_sample_packing multipack_real_batches batch_flattening sample_packing_bin_size "
    "sample_packing_group_size curriculum_sampling",
    "the run prints what it does, and the store has every metric": "logging_nan_inf_filter report_grad_norm "
    "trainer.log_val_generations log_unique_prompts",
    "the engine samples on the weights themselves": "max_lora_rank fast_inference vllm_server_host vllm_server_port "
    "vllm_max_model_length vllm_importance_sampling_correction vllm_enable_sleep_mode vllm_server_base_url "
    "vllm_importance_sampling_mode vllm_importance_sampling_clip_max vllm_guided_decoding_regex "
    "float8_kv_cache vllm_server_timeout num_generations_eval "
    f"{_ROLLOUT}.max_model_len {_ROLLOUT}.max_num_seqs {_ROLLOUT}.dtype {_ROLLOUT}.enable_chunked_prefill "
    f"{_ROLLOUT}.disable_log_stats {_ROLLOUT}.mode {_ROLLOUT}.layered_summon",
    "all rows are shuffled anew in every epoch": "shuffle_dataset data.shuffle shuffle_merged_datasets",
    "the router of a mixture of experts has no loss of its own": "router_aux_loss_coef output_router_logits",
    "the first replies to a prompt do not depend on a cache": "cache_implementation ds3_gather_for_generation",
    "prompts are read from the columns": "data.prompt_key data.reward_fn_key data.return_raw_chat data.messages_key",
    "devices are chosen by --device and --ranks": "device_map torch_dtype_device max_memory trainer.device gpus",
    "the tokenizer's own special tokens are used": "special_tokens special_tokens.pad_token special_tokens.eos_token",
    "models are loaded with burnish's own settings": "model_init_kwargs strict",
    "the task names it: a path, or owner/name:config of the hub": "dataset_info dataset_dir dataset_config",
}


@dataclass(frozen=True)
class Word:
    """An option of another library: `ours` in the order of preference, or the reason why there is none."""

    theirs: str
    ours: tuple[str, ...] = ()
    value: str = ""
    why: str = ""


@cache
def table() -> dict[str, Word]:
    """Every known option of other libraries, by name."""
    words: dict[str, Word] = {}
    for why, theirs in WITHOUT.items():
        words |= {name: Word(name, why=why) for name in theirs.split()}
    for ours, theirs in COUNTERPARTS.items():
        names, _, value = ours.partition(" ")
        words |= {name: Word(name, tuple(names.split("|")), value) for name in theirs.split()}
    return words


def normalised(name: str) -> str:
    """An option as the table spells it: --num-generations and +data.seed are num_generations and data.seed."""
    return name.lstrip("-+").replace("-", "_").strip()


def find(name: str) -> Word | None:
    """The entry of an option: of its whole dotted name, or of the part after the last dot."""
    name = normalised(name)
    return table().get(name) or table().get(name.rpartition(".")[2])


def answer(name: str, known: Collection[str], *, method: str = "", flag: bool = False) -> str | None:
    """One sentence for an option that burnish does not have but others do; None for any other.

    known: the options that the method or command has; flag: whether it was given on the command line
    """
    word, name = find(name), normalised(name)
    if word is None or name in known:
        return None

    def spelled(option: str) -> str:
        return f"--{option.replace('_', '-')}" if flag and "." not in option else option

    there = f"there is no {spelled(name)}"
    if not word.ours:
        return f"{there} in burnish: {word.why}"
    ours = next((one for one in word.ours if one in known), None)
    if ours is None:
        others = f" ({_methods_with(word.ours[0])} do)" if method and _methods_with(word.ours[0]) else ""
        lacking = f"which {method or 'this command'} does not have{others}"
        return f"{there}; in burnish: {spelled(word.ours[0])}, {lacking}; leave it out"
    text = f"{there}; in burnish: {spelled(ours)}" + (f"{' ' if flag else ': '}{word.value}" if word.value else "")
    return f"{text} ({_NOTES[ours]})" if ours in _NOTES else text


def elsewhere(option: str) -> str:
    """What an option means that only other methods have, and which; empty where none has it."""
    with_it = _methods_with(option)
    if not with_it:
        return ""
    entry = next(entry for entry in METHODS.values() if entry.name == with_it.partition(",")[0])
    meaning = options_of(entry.build).get(option, ANY).help.rstrip(".")
    return f"; {option!r} of {with_it} is: {meaning[:1].lower()}{meaning[1:]}" if meaning else f", which {with_it} have"


def nearest(name: str, known: Collection[str], flag: bool = False) -> str:
    """The option that a word is most likely a slip of; empty where none is near: n is no slip of on."""
    near = get_close_matches(name, known, 1, 0.5 if len(name) > 3 else 0.75)
    shown = f"--{near[0].replace('_', '-')}" if near and flag else repr(near[0]) if near else ""
    return f"; did you mean {shown}?" if near else ""


def _methods_with(option: str) -> str:
    """The names of a few methods that have an option."""
    load_all()
    takers = [entry for entry in METHODS.values() if option in signature(entry.build).parameters]
    library = {entry.name for entry in takers if entry.build.__module__.startswith("burnish.methods.")}
    return ", ".join(sorted((one.name for one in takers), key=lambda name: (name not in library, len(name), name))[:3])


_NOTES = {  # what differs in meaning, where a name alone would mislead
    "prompts": "tasks per step; a batch is prompts x n replies, and micro-batches follow from the token budget",
    "steps": "each step draws `prompts` tasks",
    "lora": "the rank; without it all weights are trained",
    "lora_targets": "names of layers with commas, or all-linear",
    "lora_variant": "rslora or dora",
    "lr_warmup": "steps, or below 1 a share of them",
    "log": "tensorboard, wandb, trackio or mlflow",
    "token_budget": "tokens in one micro-batch",
    "lr_min": "the lowest rate, as a share of the learning rate",
    "minibatches": "the number of updates that a batch is split into",
    "out": "the run folder",
    "n": "replies sampled for each prompt",
    "engine": "vLLM in its own Python environment",
    "reward": "path/to/file.py:function",
    "task": "a file, a folder or a hub name",
    "dtype": "of the saved model; a GPU computes in bf16",
    "max_length": "of prompt and reply together",
    "epochs": "passes over the data",
    "kv_gib": "the size of the KV cache in GiB",
}
