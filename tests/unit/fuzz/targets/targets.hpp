#pragma once

#include <ostream>

#include "tests/unit/fuzz/targets/effort.hpp"

namespace troupe::fuzz {

// Each of these makes inputs at random and checks that they are refused or used, in bounded time
// and memory, and other invariants that hold for every input.

void changed_tokenizers(Effort effort);         ///< tokenizer.json
void changed_tokenizer_configs(Effort effort);  ///< tokenizer_config.json, special_tokens_map.json
void texts_and_back(Effort effort);             ///< encode, decode and the detokenizer
void changed_templates(Effort effort);          ///< chat templates
void generated_templates(Effort effort);        ///< templates that parse, by grammar
void changed_batch_lines(Effort effort);        ///< lines of a batch file
void changed_plans(Effort effort);              ///< the bytes of step plans and results
void changed_safetensors(Effort effort);        ///< headers of weight files
void changed_gguf_files(Effort effort);         ///< weight files of GGUF
void changed_model_configs(Effort effort);      ///< config.json and generation_config.json
void changed_cluster_configs(Effort effort);    ///< the YAML and --set
void changed_outputs(Effort effort);            ///< answers of an earlier run, also packed
void changed_fingerprints(Effort effort);       ///< fingerprint.json
void changed_handshakes(Effort effort);         ///< of the call plane: no changed one is authentic
void changed_call_frames(Effort effort);        ///< calls and answers of an authentic peer
void changed_streams(Effort effort);            ///< the bytes that frames are split from
void changed_control_messages(Effort effort);   ///< between driver, agents and actor processes
void changed_link_streams(Effort effort);       ///< frames of a TLS link, and peers' names
void changed_client_hellos(Effort effort);      ///< what a stranger sends to a TLS listener
void changed_state_messages(Effort effort);     ///< between observers and drivers
void changed_cluster_files(Effort effort);      ///< by which observers find drivers

struct Target {
  const char* name;
  void (*run)(Effort effort);

  friend void PrintTo(const Target& target, std::ostream* out) { *out << target.name; }
};

inline constexpr Target targets[] = {
    {"tokenizers", changed_tokenizers},
    {"tokenizer_configs", changed_tokenizer_configs},
    {"texts", texts_and_back},
    {"templates", changed_templates},
    {"template_grammar", generated_templates},
    {"batch_lines", changed_batch_lines},
    {"step_plans", changed_plans},
    {"safetensors", changed_safetensors},
    {"gguf_files", changed_gguf_files},
    {"model_configs", changed_model_configs},
    {"cluster_configs", changed_cluster_configs},
    {"outputs", changed_outputs},
    {"fingerprints", changed_fingerprints},
    {"handshakes", changed_handshakes},
    {"call_frames", changed_call_frames},
    {"streams", changed_streams},
    {"control_messages", changed_control_messages},
    {"link_streams", changed_link_streams},
    {"client_hellos", changed_client_hellos},
    {"state_messages", changed_state_messages},
    {"cluster_files", changed_cluster_files},
};

}  // namespace troupe::fuzz
