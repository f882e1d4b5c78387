/* store/codec */
